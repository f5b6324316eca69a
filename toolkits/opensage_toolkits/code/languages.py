"""The languages: file endings, grammars, and which nodes are definitions and calls.

A query names a definition by its kind (`@function`, `@class`, ...) and its `@name`; Go adds the `@owner` of a method,
Rust a `@scope` that only gives its members an owner. A call is `@call`, with the text before the dot as `@receiver`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser, Query

_PYTHON = """
(function_definition name: (identifier) @name) @function
(class_definition name: (identifier) @name) @class
(module (expression_statement (assignment left: (identifier) @name)) @variable)
(call function: (identifier) @call)
(call function: (attribute object: (_) @receiver attribute: (identifier) @call))
"""

_JAVASCRIPT = """
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @variable))
(program (variable_declaration (variable_declarator name: (identifier) @name) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable)))
(call_expression function: (identifier) @call)
(call_expression function: (member_expression object: (_) @receiver property: (property_identifier) @call))
(new_expression constructor: (identifier) @call)
"""

_SCRIPT_ONLY = """
(class_declaration name: (identifier) @name) @class
(field_definition property: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
"""

_TYPED_ONLY = """
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(public_field_definition name: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
(interface_declaration name: (type_identifier) @name) @interface
(type_alias_declaration name: (type_identifier) @name) @type
(enum_declaration name: (identifier) @name) @enum
(internal_module name: (identifier) @name) @module
(abstract_method_signature name: (property_identifier) @name) @method
"""

_GO = """
(function_declaration name: (identifier) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @owner (generic_type type: (type_identifier) @owner)
    (pointer_type [(type_identifier) @owner (generic_type type: (type_identifier) @owner)])]))
  name: (field_identifier) @name) @method
(type_spec name: (type_identifier) @name) @type
(type_alias name: (type_identifier) @name) @type
(source_file (var_declaration (var_spec name: (identifier) @name) @variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @variable)))
(source_file (const_declaration (const_spec name: (identifier) @name) @variable))
(call_expression function: (identifier) @call)
(call_expression function: (selector_expression operand: (_) @receiver field: (field_identifier) @call))
"""

_RUST = """
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @declaration
(struct_item name: (type_identifier) @name) @class
(enum_item name: (type_identifier) @name) @enum
(union_item name: (type_identifier) @name) @class
(trait_item name: (type_identifier) @name) @interface
(type_item name: (type_identifier) @name) @type
(mod_item name: (identifier) @name body: (_)) @module
(macro_definition name: (identifier) @name) @macro
(const_item name: (identifier) @name) @variable
(static_item name: (identifier) @name) @variable
(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @scope
(call_expression function: (identifier) @call)
(call_expression function: (field_expression value: (_) @receiver field: (field_identifier) @call))
(call_expression function: (scoped_identifier path: (_) @receiver name: (identifier) @call))
(call_expression function: (generic_function function: (identifier) @call))
(macro_invocation macro: (identifier) @call)
"""

_JAVA = """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @variable
(method_invocation !object name: (identifier) @call)
(method_invocation object: (_) @receiver name: (identifier) @call)
(object_creation_expression type: [(type_identifier) @call (generic_type (type_identifier) @call)])
"""

_C = """
(struct_specifier name: (type_identifier) @name body: (_)) @class
(union_specifier name: (type_identifier) @name body: (_)) @class
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(type_definition declarator: (type_identifier) @name) @type
(preproc_function_def name: (identifier) @name) @macro
(translation_unit (preproc_def name: (identifier) @name) @variable)
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
(declaration declarator: (function_declarator declarator: (identifier) @name)) @declaration
(declaration declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name)))
  @declaration
(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name)))
  @function
(call_expression function: (identifier) @call)
(call_expression function: (field_expression argument: (_) @receiver field: (field_identifier) @call))
"""

_NAMED = "[(qualified_identifier) (field_identifier) (destructor_name) (operator_name)] @name"
_CPP_ONLY = f"""
(class_specifier name: (type_identifier) @name body: (_)) @class
(namespace_definition name: (_) @name) @module
(alias_declaration name: (type_identifier) @name) @type
(function_definition declarator: (function_declarator declarator: {_NAMED})) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: {_NAMED}))) @function
(function_definition declarator: (reference_declarator (function_declarator declarator: {_NAMED}))) @function
(function_definition declarator: (reference_declarator (function_declarator declarator: (identifier) @name))) @function
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @declaration
(call_expression function: (qualified_identifier scope: (_) @receiver name: (identifier) @call))
(new_expression type: (type_identifier) @call)
"""


@dataclass(frozen=True, slots=True)
class Language:
    """One grammar.

    Attributes:
        name: as people write it.
        package: the Python package of the grammar; its module has `function`.
        endings: of its files, with the dot.
        query: what is a definition and what a call.
        itself: words that stand for the object in its own methods.
    """

    name: str
    package: str
    endings: tuple[str, ...]
    query: str
    function: str = "language"
    itself: tuple[str, ...] = ("this",)


LANGUAGES = (
    Language("Python", "tree-sitter-python", (".py", ".pyi"), _PYTHON, itself=("self", "cls", "super()")),
    Language("JavaScript", "tree-sitter-javascript", (".js", ".jsx", ".mjs", ".cjs"), _JAVASCRIPT + _SCRIPT_ONLY),
    Language(
        "TypeScript",
        "tree-sitter-typescript",
        (".ts", ".mts", ".cts"),
        _JAVASCRIPT + _TYPED_ONLY,
        "language_typescript",
    ),
    Language("TSX", "tree-sitter-typescript", (".tsx",), _JAVASCRIPT + _TYPED_ONLY, "language_tsx"),
    Language("Go", "tree-sitter-go", (".go",), _GO, itself=()),
    Language("Rust", "tree-sitter-rust", (".rs",), _RUST, itself=("self", "Self")),
    Language("Java", "tree-sitter-java", (".java",), _JAVA),
    Language("C", "tree-sitter-c", (".c",), _C, itself=()),
    Language("C++", "tree-sitter-cpp", (".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx"), _C + _CPP_ONLY),
)
_BY_NAME = {language.name: language for language in LANGUAGES}
_BY_ENDING = {ending: language for language in LANGUAGES for ending in language.endings}


def language_of(path: str) -> Language | None:
    """The language of a file by its ending, or None."""
    dot = path.rfind(".")
    return _BY_ENDING.get(path[dot:].lower()) if dot >= 0 else None


def named(name: str) -> Language:
    """The language of that name."""
    return _BY_NAME[name]


@cache
def grammar(language: Language) -> tuple[Parser, Query] | None:
    """A parser and the query, or None where the grammar is not installed."""
    try:
        from tree_sitter import Language as Grammar
        from tree_sitter import Parser, Query

        module = importlib.import_module(language.package.replace("-", "_"))
    except ImportError:
        return None
    loaded = Grammar(getattr(module, language.function)())
    return Parser(loaded), Query(loaded, language.query)
