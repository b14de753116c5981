"""Settings of the documentation site, which `make docs` builds with Sphinx from the root of the repository."""

import keras_bert

project = "keras_bert"
version = release = keras_bert.__version__
copyright = "The keras_bert authors"

extensions = ["myst_nb"]
# The source folder is the repository, so that links between pages are the same paths as on GitHub.
root_doc = "docs/index"
include_patterns = ["docs/*.md", "keras_bert/presets/*/README.md"]
exclude_patterns = [".venv", "build", "runs"]
templates_path = ["templates"]
highlight_language = "text"

html_theme = "furo"
html_title = project
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False

# Links to headings use the same anchors as GitHub.
myst_heading_anchors = 3
