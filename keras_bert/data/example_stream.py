"""Examples that can be read any number of times, and are never all in memory."""


class ExampleStream:
    """Examples, read anew in each pass.

    An example is a dict: `text`, or `text_a` and `text_b` (str); `label` where the source has labels (str, a float for
    regression, a list of str for several labels at once); `index` or `line` (int) where the source gives one.

    Args:
        read: a function without arguments that returns a new iterator of examples.
        name: str. Where they come from, for messages.

    Example:

    >>> stream = ExampleStream(lambda: iter([{"text": "a"}]), "a list")
    >>> list(stream) == list(stream)
    True
    """

    def __init__(self, read, name):
        self._read = read
        self.name = name

    def __iter__(self):
        empty = True
        for example in self._read():
            empty = False
            yield example
        if empty:
            raise ValueError(f"{self.name}: no row can be used; the log has the first ones that were skipped")

    def __repr__(self):
        return f"ExampleStream({self.name})"
