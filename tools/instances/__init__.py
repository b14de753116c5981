"""What `tools.inspect_pretraining_data` shows, part by part."""
