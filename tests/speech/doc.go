// Package speech holds the way from sound to text against Hugging Face's Whisper:
// expected.py says how what is expected came about.
package speech
