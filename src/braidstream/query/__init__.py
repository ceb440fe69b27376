"""The query language: CQL text, or the builder that needs no text, to a `Query`. Imports neither Spark nor Arrow."""

from braidstream.query.builder import JoinBuilder, join
from braidstream.query.cql import MAX_INPUTS, parse
from braidstream.query.duration import describe_duration, parse_duration
from braidstream.query.model import Aggregate, Input, KeyClass, Output, Query
from braidstream.query.types import Column, Schema, common_type

__all__ = [
    "MAX_INPUTS",
    "Aggregate",
    "Column",
    "Input",
    "JoinBuilder",
    "KeyClass",
    "Output",
    "Query",
    "Schema",
    "common_type",
    "describe_duration",
    "join",
    "parse",
    "parse_duration",
]
