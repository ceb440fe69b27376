"""DHTJoin on a simulated Chord network: stream joins over a wide-area network instead of one cluster."""
