"""Settings of the documentation site, which `make docs` builds with Sphinx from the root of the repository."""

import dataclasses
import os
import shutil
import sys
import zlib
from pathlib import Path

from sphinx.util.inspect import signature, stringify_signature

import keras_bert
import keras_bert.training
from docs.docstring_markup import convert

ROOT = Path(__file__).resolve().parents[1]
PUBLIC_NAMES = {name: module.__name__ for module in (keras_bert.training, keras_bert) for name in module.__all__}

# The commands of guides use this Python and the programs of the repository.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["PYTHONPATH"] = str(ROOT)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
STARTUP = ROOT / "build" / "ipython" / "profile_default" / "startup"
STARTUP.mkdir(parents=True, exist_ok=True)
shutil.copy(ROOT / "docs" / "guide_startup.py", STARTUP)
os.environ["IPYTHONDIR"] = str(ROOT / "build" / "ipython")

project = "keras_bert"
version = release = keras_bert.__version__
copyright = "The keras_bert authors"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "sphinx.ext.napoleon"]
# The source folder is the repository, so that links between pages are the same paths as on GitHub.
root_doc = "docs/index"
include_patterns = ["docs/*.md", "docs/api/*.md", "examples/guides/*.md", "keras_bert/presets/*/README.md"]
exclude_patterns = [".venv", "build", "runs"]
templates_path = ["templates"]
highlight_language = "text"

# Guides are notebooks, run when the site is built for the first time and again when their code changes.
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds per cell; a guide takes less than two minutes on two idle cores
nb_merge_streams = True
nb_output_stderr = "remove"  # logs

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"light_css_variables": {"code-font-size": "0.75rem"}}  # for lines of 95 columns
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False

# Links to headings use the same anchors as GitHub.
myst_heading_anchors = 3

# The API reference. Keras documents the methods that only have its meaning.
autodoc_default_options = {
    "members": True,
    # These methods have the meaning that Keras gives them.
    "exclude-members": "build, call, compile_from_config, compute_loss, compute_metrics, from_config, get_config, "
    "get_compile_config, make_test_function, make_train_function, reset_state, result, test_step, train_step, "
    "update_state",
}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
# Types in signatures are links where they are public or an inventory is known. All other references must resolve.
nitpick_ignore_regex = [("py:.*", ".*")]

# An inventory that cannot be downloaded is replaced by an empty one: the build needs no network.
EMPTY_INVENTORY = ROOT / "build" / "empty.inv"
HEADER = "# Sphinx inventory version 2\n# Project: none\n# Version:\n# The remainder is compressed using zlib.\n"
EMPTY_INVENTORY.write_bytes(HEADER.encode() + zlib.compress(b""))
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", (None, str(EMPTY_INVENTORY))),
    "numpy": ("https://numpy.org/doc/stable", (None, str(EMPTY_INVENTORY))),
}
intersphinx_timeout = 5  # seconds


def skip_member(app, kind, name, member, skip, options):
    """Leaves out what is inherited from Keras and other libraries, and what has no docstring of its own."""
    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
    is_ours = str(getattr(member, "__module__", None)).startswith("keras_bert")
    return skip or not is_ours or not member.__doc__


def convert_docstring(app, kind, name, value, options, lines):
    """Converts a docstring to reStructuredText."""
    is_settings = dataclasses.is_dataclass(value) and all(f.metadata.get("help") for f in dataclasses.fields(value))
    lines[:] = convert(lines, value if is_settings else None)


def show_constructor(app, kind, name, value, options, arguments, returned):
    """Shows the signature of the constructor: Keras replaces that of the class."""
    if kind != "class":
        return None
    constructor = signature(value.__init__, bound_method=True)
    return stringify_signature(constructor, show_annotation=False, show_return_annotation=False), None


def find_public_name(app, env, node, content):
    """Resolves a type by the public name of the class, whatever module defines it."""
    name = node["reftarget"].rpartition(".")[2]
    if node.get("refdomain") == "py" and name in PUBLIC_NAMES:
        target = f"{PUBLIC_NAMES[name]}.{name}"
        return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)
    return None


def setup(app):
    """Connects the functions above, that for docstrings before napoleon's."""
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", convert_docstring, priority=1)
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("missing-reference", find_public_name)
