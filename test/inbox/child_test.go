package inbox

const childVariable = "INBOX_TEST_CHILD"

func child() {}
