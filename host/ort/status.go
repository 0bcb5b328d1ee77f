package ort

import (
	"fmt"
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// An ErrorCode is ONNX Runtime's OrtErrorCode.
type ErrorCode int

// The codes of OrtErrorCode.
const (
	CodeOK               ErrorCode = 0
	CodeFail             ErrorCode = 1
	CodeInvalidArgument  ErrorCode = 2
	CodeNoSuchFile       ErrorCode = 3
	CodeNoModel          ErrorCode = 4
	CodeEngineError      ErrorCode = 5
	CodeRuntimeException ErrorCode = 6
	CodeInvalidProtobuf  ErrorCode = 7
	CodeModelLoaded      ErrorCode = 8
	CodeNotImplemented   ErrorCode = 9
	CodeInvalidGraph     ErrorCode = 10
	CodeEPFail           ErrorCode = 11
	CodeLoadCanceled     ErrorCode = 12
)

// An Error is a refusal of ONNX Runtime: the content of an OrtStatus.
type Error struct {
	// Call is the function of the C API, CreateSession for example.
	Call    string
	Code    ErrorCode
	Message string
}

// Error returns the call and ONNX Runtime's own message.
func (e *Error) Error() string { return fmt.Sprintf("onnxruntime: %s: %s", e.Call, e.Message) }

// TakeStatus turns an OrtStatus into an error and releases it. Status 0 is success.
func (l *Library) TakeStatus(call string, status uintptr) error {
	if status == 0 {
		return nil
	}
	err := l.ReadStatus(call, status)
	l.Call(slot.ReleaseStatus, status)
	return err
}

// ReadStatus reads an OrtStatus that is not 0.
func (l *Library) ReadStatus(call string, status uintptr) *Error {
	return &Error{
		Call:    call,
		Code:    ErrorCode(int32(l.Call(slot.GetErrorCode, status))),
		Message: cmem.GoString(l.Call(slot.GetErrorMessage, status)),
	}
}

// NewStatus makes an OrtStatus for a caller of the C API, who releases it.
func (l *Library) NewStatus(code ErrorCode, message string) uintptr {
	text := make([]byte, 0, len(message)+1)
	for i := range len(message) {
		if message[i] != 0 {
			text = append(text, message[i])
		}
	}
	text = append(text, 0)
	return l.Call(slot.CreateStatus, uintptr(code), uintptr(unsafe.Pointer(&text[0])))
}
