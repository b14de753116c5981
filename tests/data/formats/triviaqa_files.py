"""Made-up questions in the format of TriviaQA."""

import json

QUESTIONS = [
    {
        "Answer": {
            "Aliases": ["Lake Vell", "Vell (lake)", "VELL, THE", "Lac Véll"],
            "NormalizedAliases": ["lake vell", "vell lake", "vell", "lac véll"],
            "NormalizedValue": "lake vell",
            "Type": "WikipediaEntity",
            "Value": "Lake Vell",
        },
        "EntityPages": [
            {"DocSource": "TagMe", "Filename": "Vell.txt", "LinkProbability": "0.02", "Rho": "0.2", "Title": "Vell"},
            {"DocSource": "Search", "Filename": 'Ferry_"Anna"?.txt', "Title": 'Ferry "Anna"?'},
        ],
        "Question": "On which lake did the ferry Anna begin to sail in 1911?",
        "QuestionId": "made_1",
        "QuestionSource": "http://trivia.example/",
        "SearchResults": [
            {"Description": "The ferries ...", "Filename": "12/12_345.txt", "Rank": 0, "Url": "http://ferries.example/"}
        ],
    },
    {
        "Answer": {"Aliases": ["O'Hara's Tune"], "Type": "FreeForm", "Value": "O'HARA'S TUNE"},
        "EntityPages": [
            {"DocSource": "TagMe", "Filename": "Harper.txt", "Title": "Harper"},
            {"DocSource": "TagMe", "Filename": "Late.txt", "Title": "Late"},
        ],
        "Question": "Which tune does the harper play last?",
        "QuestionId": "made_2",
        "QuestionSource": "http://trivia.example/",
    },
]

# By folder and file. In "Late.txt" the answer is beyond the first 400 words.
EVIDENCE = {
    "wikipedia/Vell.txt": b"Lake Vell is deep.\n\nVell means cold.\n",
    'wikipedia/Ferry_"Anna"?.txt': "\ufeffThe ferry\r\nsailed on the water called  lac\u00a0véll".encode(),
    "web/12/12_345.txt": b"Ferries \xff\xfe sail. Nobody swam in it, LAKE-VELL.",
    "wikipedia/Harper.txt": "At midnight he plays “O’Hara’s Tune” – and sleeps.".encode(),
    "wikipedia/Late.txt": b"la " * 398 + b"the end. O'Hara's Tune",
}


def write_triviaqa(folder, questions=QUESTIONS, evidence=EVIDENCE, **others):
    """Writes a file of questions and a folder of evidence; returns both paths."""
    content = {"Data": questions, "Domain": "Web", "Split": "train", "VerifiedEval": False, "Version": 1.0, **others}
    path = folder / "web-train.json"
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False), encoding="utf-8")
    for name, document in evidence.items():
        file = folder / "evidence" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(document)
    return path, folder / "evidence"
