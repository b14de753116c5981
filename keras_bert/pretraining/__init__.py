"""Text to data for pre-training: documents, sentence pairs, masks, shards."""
