// Package vision compares what graft generates from images with Hugging Face's models, from the picture to the text.
package vision
