"""The rules of the repository: small functions from a tree of files to what they found wrong in it.

`python -m tools.rules` applies every rule to the working tree and exits with 1 if one of them is broken. A rule is a
plain function that reads text and syntax trees and, but for the options, imports nothing of what it checks, so the
whole costs a second.
"""

from collections.abc import Callable, Iterable

from tools.rules.cycles import no_import_cycles
from tools.rules.dependencies import every_dependency_is_explained, every_import_is_declared
from tools.rules.imports import (
    nothing_is_unpickled,
    planes_keep_to_their_imports,
    pyspark_stays_where_it_is_allowed,
)
from tools.rules.layout import (
    a_file_name_means_one_thing,
    files_stay_short,
    modules_open_with_a_docstring,
    no_utils_module,
)
from tools.rules.options import the_options_page_is_as_made
from tools.rules.papers import the_papers_map_names_what_exists
from tools.rules.private import no_machine_paths, no_registry_hosts
from tools.rules.tree import Finding, Tree
from tools.rules.types import few_mappings_of_anything, no_cast_to_any, no_guessed_attributes

__all__ = ["RULES", "Finding", "Rule", "Tree"]

Rule = Callable[[Tree], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    planes_keep_to_their_imports,
    pyspark_stays_where_it_is_allowed,
    nothing_is_unpickled,
    no_import_cycles,
    a_file_name_means_one_thing,
    no_utils_module,
    modules_open_with_a_docstring,
    files_stay_short,
    no_machine_paths,
    no_registry_hosts,
    the_papers_map_names_what_exists,
    the_options_page_is_as_made,
    every_import_is_declared,
    every_dependency_is_explained,
    few_mappings_of_anything,
    no_cast_to_any,
    no_guessed_attributes,
)
