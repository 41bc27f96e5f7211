-- Whether the outbox rows of a batch were deleted, by outbox.retention or after_publish: delete. Marking and deleting are
-- two things: a row can be marked at once and deleted a month later. What was there before the first start is never deleted.
ALTER TABLE {{.Schema}}.cdc_relay_journal_batch ADD COLUMN deleted boolean NOT NULL DEFAULT false;
CREATE INDEX cdc_relay_journal_batch_undeleted ON {{.Schema}}.cdc_relay_journal_batch (source, batch) INCLUDE (size) WHERE NOT deleted;
