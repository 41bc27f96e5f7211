-- What the lanes of the records in the topics were made of: a fingerprint of message.topic and message.key. NULL: not
-- noted yet.
ALTER TABLE {{.Schema}}.cdc_relay_state ADD COLUMN IF NOT EXISTS lanes text;
