package registry

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// digitsMost bounds the text of a number that is written exactly: an exponent of nine digits is a gigabyte otherwise.
const digitsMost, exponentMost = 1000, 1000

// whole is the value as an int or a long: a number without a fraction, or what the logical type writes as text.
func (t *avroType) whole(value any) (int64, bool) {
	bits := 64
	if t.kind == "int" {
		bits = 32
	}
	if text, is := value.(string); is {
		n, ok := t.instant(text)
		return n, ok && (bits == 64 || n == int64(int32(n)))
	}
	text, is := value.(json.Number)
	if !is {
		return 0, false
	}
	if n, err := strconv.ParseInt(text.String(), 10, bits); err == nil {
		return n, true
	}
	exact, ok := rational(text.String())
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, false
	}
	n := exact.Num().Int64()
	return n, bits == 64 || n == int64(int32(n))
}

// rational is a decimal number exactly, if it is of a size that numbers have.
func rational(text string) (*big.Rat, bool) {
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(text), "e")
	if scientific {
		n, err := strconv.Atoi(exponent)
		if err != nil || n > exponentMost || n < -exponentMost {
			return nil, false
		}
	}
	if len(mantissa) > digitsMost || strings.ContainsAny(text, "/_xXpPbBoO") {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// The forms in which JSON has dates and times, besides numbers.
const (
	localForm = "2006-01-02T15:04:05.999999999"
	clockForm = "15:04:05.999999999"
)

// instant reads a date or a time. What the type cannot hold is cut off, as Java does.
func (t *avroType) instant(text string) (int64, bool) {
	var at time.Time
	var err error
	switch t.logical {
	case "date":
		at, err = time.Parse(time.DateOnly, text)
		return at.Unix() / (24 * 60 * 60), err == nil // a midnight
	case "time-millis":
		at, err = time.Parse(clockForm, text)
		return sinceMidnight(at).Milliseconds(), err == nil
	case "time-micros":
		at, err = time.Parse(clockForm, text)
		return sinceMidnight(at).Microseconds(), err == nil
	case "timestamp-millis", "timestamp-micros", "timestamp-nanos":
		at, err = time.Parse(time.RFC3339Nano, text)
	case "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos":
		at, err = time.Parse(localForm, text)
	default:
		return 0, false
	}
	switch unit := t.logical[strings.LastIndexByte(t.logical, '-')+1:]; {
	case err != nil:
		return 0, false
	case unit == "millis":
		return at.UnixMilli(), true
	case unit == "micros":
		return at.UnixMicro(), true
	}
	return at.UnixNano(), time.Unix(0, at.UnixNano()).Equal(at)
}

func sinceMidnight(at time.Time) time.Duration {
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute +
		time.Duration(at.Second())*time.Second + time.Duration(at.Nanosecond())
}

// number is a float or a double, the nearest that there is.
func number(value any, bits int) (float64, bool) {
	switch v := value.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), bits)
		return f, err == nil
	case string: // as Avro's own JSON writes them
		switch v {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}

// binary encodes bytes or a fixed: a decimal's number, a UUID, or text with one character per byte, as in Avro's
// own JSON.
func (t *avroType) binary(value any) ([]byte, bool) {
	if t.logical == "decimal" {
		return t.decimal(value)
	}
	text, is := value.(string)
	if !is {
		return nil, false
	}
	if t.logical == "uuid" && isUUID(text) {
		b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		return b, err == nil
	}
	b := make([]byte, 0, len(text))
	for _, c := range text {
		if c > math.MaxUint8 {
			return nil, false
		}
		b = append(b, byte(c))
	}
	return b, true
}

// decimal is a number's unscaled value in two's complement, the highest byte first: of a fixed in its size, else as few
// bytes as it takes. A number with more digits than the type has would be another one, and is none.
func (t *avroType) decimal(value any) ([]byte, bool) {
	var text string
	switch v := value.(type) {
	case json.Number:
		text = v.String()
	case string: // as programs write amounts of money
		text = v
	default:
		return nil, false
	}
	exact, ok := rational(text)
	if !ok {
		return nil, false
	}
	unscaled := exact.Mul(exact, new(big.Rat).SetInt(power10(t.scale)))
	if !unscaled.IsInt() || unscaled.Num().CmpAbs(power10(t.precision)) >= 0 {
		return nil, false
	}
	return twosComplement(unscaled.Num(), t.size)
}

func power10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// twosComplement is the number in so many bytes; 0: in as few as it takes.
func twosComplement(n *big.Int, size int) ([]byte, bool) {
	least := n.BitLen()/8 + 1
	if n.Sign() < 0 {
		least = new(big.Int).Not(n).BitLen()/8 + 1
	}
	if size == 0 {
		size = least
	}
	if size < least {
		return nil, false
	}
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(size)*8))
	}
	return n.FillBytes(make([]byte, size)), true
}

// isUUID reports whether the text is one in the form of RFC 9562, section 4.
func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}
