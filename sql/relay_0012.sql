-- Why a person let an alarm be.
ALTER TABLE {{.Schema}}.cdc_relay_alarms ADD COLUMN acknowledged_note text;
