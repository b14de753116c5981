"""Converts TriviaQA to the format of SQuAD, to fine-tune on TriviaQA before SQuAD.

    python -m tools.triviaqa_to_squad --input=qa/wikipedia-train.json --evidence_dir=evidence \\
        --output=triviaqa-train.json

Input: a file of TriviaQA's folder qa (wikipedia-train.json, web-train.json, ...), and its folder evidence with the
documents in wikipedia and web.

Output: JSON of SQuAD 1.1 for tasks.squad, with a paragraph for every document that contains the answer in its first
400 words (--max_tokens), as in BERT's paper (section 4.2). The answer is the first occurrence of the answer or one of
its aliases as whole words; keras_bert/data/formats/triviaqa.py describes the rule. Documents without the answer are
left out and counted. The file appears when it is complete.

Memory grows with the file of questions, by about six times its size, and not with the documents.
"""

import sys

from absl import app, flags

from tools.output_file import check_is_no_input, check_output
from tools.program import flag_definer, run_program


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "input", None, "TriviaQA's file of questions, such as qa/wikipedia-train.json.", required=True)
    define("string", "evidence_dir", None, "TriviaQA's folder evidence, with wikipedia and web.", required=True)
    define("string", "output", None, "Output file in the format of SQuAD.", required=True)
    define("integer", "max_tokens", 400, "Words to use from the start of each document.", lower_bound=1)
    define("integer", "max_questions", None, "Maximum number of questions to read. Default: all.", lower_bound=1)
    define("bool", "skip_bad_rows", False, "Skip and count unusable questions and missing documents.")
    define("bool", "overwrite", False, "Replace an existing output file.")
    define("bool", "progress", True, "Show a progress bar on a terminal.")


def show_progress(articles, counts, progress):
    """Yields articles, with a progress bar over the questions of `TriviaQACounts`."""
    from tqdm import tqdm

    with tqdm(unit=" questions", disable=None if progress else True) as bar:
        for article in articles:
            bar.total = counts.questions_of_file
            bar.update(counts.questions - bar.n)
            yield article
        bar.update(counts.questions - bar.n)


def describe(counts, max_tokens, output):
    """Returns a report on what was written and left out."""
    from keras_bert.io.row_errors import plural

    lines = [
        f"{plural(counts.questions, 'question')}, {plural(counts.documents, 'document')}: "
        f"{plural(counts.kept, 'document')} of {plural(counts.questions_kept, 'question')} written to {output}"
    ]
    others = {
        f"left out: no answer in {plural(max_tokens, 'word')}": (counts.without_answer, "document"),
        "left out: the file is missing": (counts.missing, "document"),
        "named twice by a question": (counts.repeated, "document"),
        "skipped: unusable": (counts.bad_questions, "question"),
        "left out: not verified": (counts.rejected, "question"),
    }
    return "\n".join([*lines, *(f"{plural(*number)} {what}" for what, number in others.items() if number[0])])


def run(values):
    """Checks the flags, writes the file, and prints a report to standard error."""
    check_output(values.output, values.overwrite)

    from keras_bert.data.formats.squad_files import write_squad
    from keras_bert.data.formats.triviaqa import TriviaQACounts, squad_articles
    from keras_bert.io.row_errors import BadRows

    bad_rows, counts = BadRows(skip=values.skip_bad_rows), TriviaQACounts()
    articles = squad_articles(
        values.input, values.evidence_dir, values.max_tokens, values.max_questions, bad_rows, counts
    )
    check_is_no_input(values.output, [values.input])
    write_squad(values.output, show_progress(articles, counts, values.progress), values.overwrite)
    print(describe(counts, values.max_tokens, values.output), file=sys.stderr)


def main(argv):
    """Runs the program; errors in files or flags are printed in one line."""
    run_program("triviaqa_to_squad", run, argv, "give files with --input and --evidence_dir")


if __name__ == "__main__":
    define_flags()
    app.run(main)
