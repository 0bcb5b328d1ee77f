// Package speech makes of recorded speech what the encoder of a speech model reads:
// log-mel features as Hugging Face's WhisperFeatureExtractor computes them, or samples as
// its Wav2Vec2FeatureExtractor prepares them, from WAV files, or features that were
// computed before, from NumPy files.
package speech
