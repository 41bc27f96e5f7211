{{status.sql}}
COMMENT ON VIEW {{.View}} IS '{{.ViewMark}}';
