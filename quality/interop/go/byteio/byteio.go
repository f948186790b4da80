// Package byteio stands in for the module of this name, of which seata-go uses one function and
// which not every proxy of Go modules has. All else of the client is as it was released.
package byteio

import (
	"encoding/binary"
	"io"
)

// BigEndianReader reads numbers, the most significant byte first.
type BigEndianReader struct {
	io.Reader
}

// ReadInt16 reads a number of two bytes, and says how many bytes it took.
func (r *BigEndianReader) ReadInt16() (int16, int, error) {
	var bytes [2]byte
	count, err := io.ReadFull(r.Reader, bytes[:])
	return int16(binary.BigEndian.Uint16(bytes[:])), count, err
}
