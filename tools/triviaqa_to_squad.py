"""Makes a file in SQuAD's form of TriviaQA's files, to fine-tune on TriviaQA before SQuAD.

    python -m tools.triviaqa_to_squad --input=qa/wikipedia-train.json --evidence_dir=evidence \\
        --output=triviaqa-train.json

Input: a file of TriviaQA's folder qa (wikipedia-train.json, web-train.json, ...), and its folder evidence, in which
wikipedia and web hold the documents.

Output: the JSON of SQuAD 1.1, as tasks.squad reads it, with a paragraph for every document that names the answer in its
first 400 words (--max_tokens), which is what BERT's paper trained on (section 4.2). The answer is the first place of
the text where it, or another name of it, stands as words; keras_bert/data/formats/triviaqa.py has the rule. Documents
that do
not name the answer are left out and counted. The file gets its name when it is complete.

Memory grows with the file of questions, by about six times its size, and not with the documents.
"""

import sys

from absl import app, flags

from tools.output_file import check_is_no_input, check_output


def watched(articles, counts, progress):
    """Articles, with a bar on standard error that shows how many of the questions have been read.

    Args:
        articles: iterator of articles.
        counts: `TriviaQACounts` of what has been read for them.
        progress: bool, whether to draw a bar; None draws one on a terminal.

    Yields:
        the articles.
    """
    from tqdm import tqdm

    draws = sys.stderr.isatty() if progress is None else progress
    with tqdm(unit=" questions", disable=not draws) as bar:
        for article in articles:
            bar.total = counts.questions_of_file
            bar.update(counts.questions - bar.n)
            yield article
        bar.update(counts.questions - bar.n)


def describe(counts, max_tokens, output):
    """What was made, for a human.

    Args:
        counts: `TriviaQACounts`.
        max_tokens: int. The words that were read of a document.
        output: str. The file.

    Returns:
        str, a line for every kind of document and question that there was.
    """
    from keras_bert.io.row_errors import plural

    lines = [
        f"{plural(counts.questions, 'question')}, {plural(counts.documents, 'document')}: "
        f"{plural(counts.kept, 'document')} of {plural(counts.questions_kept, 'question')} written to {output}"
    ]
    others = {
        f"left out: no answer in {plural(max_tokens, 'word')}": (counts.without_answer, "document"),
        "left out: there is no such file": (counts.missing, "document"),
        "named twice by their question": (counts.repeated, "document"),
        "skipped: cannot be used": (counts.bad_questions, "question"),
        "left out: not verified": (counts.rejected, "question"),
    }
    return "\n".join([*lines, *(f"{plural(*number)} {what}" for what, number in others.items() if number[0])])


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("string", "input", None, "TriviaQA's file of questions, such as qa/wikipedia-train.json.", required=True)
    define("string", "evidence_dir", None, "TriviaQA's folder evidence, which holds wikipedia and web.", required=True)
    define("string", "output", None, "File in SQuAD's form.", required=True)
    define("integer", "max_tokens", 400, "Words of a document, from its beginning; 400: BERT's paper.", lower_bound=1)
    define("integer", "max_questions", None, "Questions to read, to try it out; by default all.", lower_bound=1)
    define("bool", "skip_bad_rows", False, "Whether to count and pass over bad questions and missing documents.")
    define("bool", "overwrite", False, "Whether to replace an output that exists.")
    define("enum", "progress", "auto", ["auto", "on", "off"], "Whether to draw a bar; auto: on a terminal.")


def run(values):
    """Checks the flags, writes the file, and says on standard error what was made."""
    check_output(values.output, values.overwrite)

    from keras_bert.data.formats.squad_files import write_squad
    from keras_bert.data.formats.triviaqa import TriviaQACounts, squad_articles
    from keras_bert.io.row_errors import BadRows

    bad_rows, counts = BadRows(skip=values.skip_bad_rows), TriviaQACounts()
    articles = squad_articles(
        values.input, values.evidence_dir, values.max_tokens, values.max_questions, bad_rows, counts
    )
    check_is_no_input(values.output, [values.input])
    progress = {"auto": None, "on": True, "off": False}[values.progress]
    write_squad(values.output, watched(articles, counts, progress), values.overwrite)
    print(describe(counts, values.max_tokens, values.output), file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with files or flags is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every file has its flag")
    try:
        run(flags.FLAGS)
    except (OSError, ValueError) as error:
        sys.exit(f"tools.triviaqa_to_squad: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
