package config

import "slices"

// typed makes a rule from a check of the key's own type.
func typed[T any](allowed string, check func(T) string) rule {
	return rule{allowed: allowed, check: func(value any) string { return check(value.(T)) }}
}

// accept is a check that has nothing to add to what is allowed.
func accept(ok bool) string {
	if ok {
		return ""
	}
	return notAllowed
}

// optional also allows the empty text.
func optional(r rule) rule {
	allowed := r
	allowed.allowed += ", or empty"
	allowed.check = func(value any) string {
		if value.(string) == "" {
			return ""
		}
		return r.check(value)
	}
	if r.values != nil {
		allowed.values = append(slices.Clone(r.values), "")
	}
	return allowed
}
