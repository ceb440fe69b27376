"""What studies the engine: papers, simulators, benchmarks, made streams, and the engine without Spark for tests."""
