"""imagededup's perceptual hashes, in its pool of two processes."""

import sys

from imagededup.methods import PHash

if __name__ == "__main__":
    print(len(PHash().encode_images(image_dir=sys.argv[1], num_enc_workers=2)))
