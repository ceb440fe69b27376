"""The query language: CQL text, or the builder that needs no text, to a `Query`. Imports neither Spark nor Arrow."""

from braidstream.query.builder import JoinBuilder, join, kind_named
from braidstream.query.cql import MAX_INPUTS, parse
from braidstream.query.duration import describe_duration, parse_duration
from braidstream.query.model import Aggregate, Band, Gap, Input, KeyClass, Match, Output, Query
from braidstream.query.types import Column, Schema, common_type

__all__ = [
    "MAX_INPUTS",
    "Aggregate",
    "Band",
    "Column",
    "Gap",
    "Input",
    "JoinBuilder",
    "KeyClass",
    "Match",
    "Output",
    "Query",
    "Schema",
    "common_type",
    "describe_duration",
    "join",
    "kind_named",
    "parse",
    "parse_duration",
]
