// Package vision makes of an image file what the encoder of an image model reads: pixel values as Hugging Face's
// image processors compute them with Pillow, from PNG and JPEG files.
package vision
