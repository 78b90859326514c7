"""What `recipe=fast` was chosen from: decoder and resizer variants, and the DCT margin."""
