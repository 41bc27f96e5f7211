package wire

import "errors"

// Constructors of values of AMQP 1.0 that are text or bytes, or a map with a long count; and the section that is read.
const (
	binary8  = 0xa0
	string8  = 0xa1
	symbol8  = 0xa3
	binary32 = 0xb0
	string32 = 0xb1
	map32    = 0xd1

	applicationProperties = 0x74
	data                  = 0x75
)

var errShape = errors.New("not a message of AMQP 1.0")

// take takes one value off the front: its constructor, and its content without length.
func take(b []byte) (constructor byte, content, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, nil, errShape
	}
	constructor, b = b[0], b[1:]
	n, width := 0, 0
	switch constructor >> 4 {
	case 0x4:
	case 0x5, 0x6, 0x7, 0x8, 0x9:
		n = 1 << (constructor>>4 - 5)
	case 0xa, 0xc, 0xe:
		width = 1
	case 0xb, 0xd, 0xf:
		width = 4
	default:
		return 0, nil, nil, errShape
	}
	if len(b) < width {
		return 0, nil, nil, errShape
	}
	for _, digit := range b[:width] {
		n = n<<8 | int(digit)
	}
	if b = b[width:]; n < 0 || n > len(b) {
		return 0, nil, nil, errShape
	}
	return constructor, b[:n], b[n:], nil
}

// find looks for the message's first section of the kind; no content: there is none.
func find(message []byte, kind byte) (constructor byte, content []byte, err error) {
	for len(message) > 0 {
		if message[0] != 0 { // a section is a described value
			return 0, nil, errShape
		}
		_, code, rest, err := take(message[1:])
		if err != nil {
			return 0, nil, err
		}
		if constructor, content, message, err = take(rest); err != nil {
			return 0, nil, err
		}
		if len(code) == 1 && code[0] == kind {
			return constructor, content, nil
		}
	}
	return 0, nil, nil
}

// Body is the message's first section of data; nil: it has none.
func Body(message []byte) ([]byte, error) {
	_, content, err := find(message, data)
	return content, err
}

// Pick hands out the message's application properties that are text or bytes.
func Pick(message []byte, each func(name, value []byte)) error {
	constructor, content, err := find(message, applicationProperties)
	if err != nil || content == nil {
		return err
	}
	count := 1 // bytes of the number of entries, which the content's length tells as well
	if constructor == map32 {
		count = 4
	}
	if len(content) < count {
		return errShape
	}
	return pairs(content[count:], each)
}

// pairs hands out what is in a map.
func pairs(content []byte, each func(name, value []byte)) error {
	for len(content) > 0 {
		_, name, rest, err := take(content)
		if err != nil {
			return err
		}
		constructor, value, rest, err := take(rest)
		if err != nil {
			return err
		}
		content = rest
		switch constructor {
		case string8, string32, symbol8, binary8, binary32:
			each(name, value)
		}
	}
	return nil
}
