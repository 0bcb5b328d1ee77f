// Package hub compares graft's use of Hugging Face's cache with that of Hugging Face's own library, on one server.
package hub
