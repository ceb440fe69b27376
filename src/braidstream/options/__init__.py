"""Every option, declared once: `tables` has them, `kinds` says what they may be, `job_table` reads them."""

from braidstream.options.function_options import FunctionOptions
from braidstream.options.job_table import texts_of
from braidstream.options.option import Checked, Option, chosen, option, options_of, shown
from braidstream.options.size_text import parse_size
from braidstream.options.tables import (
    CHOICES,
    ORDERS,
    ROUTERS,
    RULES,
    STRATEGIES,
    BudgetOptions,
    Disk,
    FlowOptions,
    JobControl,
    JobFlow,
    JobQuery,
    JobSink,
    JobStream,
    JobTableOptions,
    RouterOptions,
    Settings,
    StartOptions,
)

__all__ = [
    "CHOICES",
    "ORDERS",
    "ROUTERS",
    "RULES",
    "STRATEGIES",
    "BudgetOptions",
    "Checked",
    "Disk",
    "FlowOptions",
    "FunctionOptions",
    "JobControl",
    "JobFlow",
    "JobQuery",
    "JobSink",
    "JobStream",
    "JobTableOptions",
    "Option",
    "RouterOptions",
    "Settings",
    "StartOptions",
    "chosen",
    "option",
    "options_of",
    "parse_size",
    "shown",
    "texts_of",
]
