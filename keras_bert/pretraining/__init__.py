"""Raw text to pre-training data: corpora, shards, instances, record files and packed rows."""
