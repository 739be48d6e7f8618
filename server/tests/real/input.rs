//! Bad files, bad folders, bad frames, slow readers, floods.
