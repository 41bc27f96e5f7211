package harness

import (
	"os"
	"testing"
)

// scenarios is how often, or with how many events, each scenario runs: in CI, which has 20 minutes on 2 cores for
// everything, and at night. Who needs more CI time here takes it from another line.
var scenarios = map[string]struct{ ci, nightly int }{
	"mixed load events":                       {ci: 20_000, nightly: 100_000},
	"sigterm under load":                      {ci: 2, nightly: 20},
	"reconnects":                              {ci: 2, nightly: 20},
	"kill9 under load":                        {ci: 3, nightly: 30},
	"kills of small limits":                   {ci: 2, nightly: 10},
	"rate of small limits":                    {ci: 6_000, nightly: 6_000},
	"broker stop seconds":                     {ci: 12, nightly: 60},
	"wal.budget megabytes":                    {ci: 24, nightly: 1024},
	"foreign WAL megabytes a second":          {ci: 6, nightly: 50},
	"seconds of a spooled outage":             {ci: 0, nightly: 600}, // or longer, by the foreign WAL
	"wal_sender_timeout of an outage seconds": {ci: 4, nightly: 10},
	"postgres crashes in a spooled outage":    {ci: 0, nightly: 6},
	"promotions with a spool":                 {ci: 0, nightly: 1},
	"rows of a spooled transaction":           {ci: 0, nightly: 1_000_000},
	"kills in a spooled outage":               {ci: 0, nightly: 6}, // and as many after it
	"broker frozen seconds":                   {ci: 5, nightly: 30},
	"connection cuts":                         {ci: 30, nightly: 300},
	"catch-up rows":                           {ci: 5_000, nightly: 20_000},
	"moved events":                            {ci: 4_000, nightly: 100_000},
	"moves between majors":                    {ci: 1, nightly: 7},
	"rows in one transaction":                 {ci: 100_000, nightly: 1_000_000},
	"rotated tokens":                          {ci: 8, nightly: 100},
	"token endpoint seconds":                  {ci: 1, nightly: 10}, // away
	"idle WAL megabytes":                      {ci: 100, nightly: 1_000},
	"postgres crashes":                        {ci: 2, nightly: 20},
	"forgetful crashes":                       {ci: 2, nightly: 200},
	"poisoned events":                         {ci: 20_000, nightly: 200_000},
	"poisoned kills":                          {ci: 3, nightly: 20},
	"events of rows that tell":                {ci: 2_000, nightly: 20_000},
	"kills of rows that tell":                 {ci: 2, nightly: 10},
	"absent topic kills":                      {ci: 2, nightly: 20},
	"blocked events of a lane":                {ci: 20_000, nightly: 100_000},
	"parked events at a start":                {ci: 50_000, nightly: 200_000},
	"frozen takeover seconds":                 {ci: 10, nightly: 1}, // behind wal_sender_timeout

	// Of each broker besides Kafka; every third kill of the relay goes with one of the broker.
	"faults of RabbitMQ's cluster": {ci: 0, nightly: 8}, // of a queue, and of a stream
	"brokers' transactions":        {ci: 300, nightly: 5_000},
	"brokers' kills":               {ci: 3, nightly: 30},
	"brokers' faults":              {ci: 3, nightly: 360},      // cuts; some go with a kill
	"frozen relays":                {ci: 0, nightly: 1},        // of NATS and Redis; their drivers are tried alone, too
	"step-downs":                   {ci: 4, nightly: 20},       // of a NATS stream's leader; every fourth is a kill of it
	"retries of tickets, ms":       {ci: 100, nightly: 60_000}, // the first pause; the others are 5 and 15 times as long
	"failovers":                    {ci: 2, nightly: 10},       // of Redis; at every third one the replica misses the end
	"messages of a minute":         {ci: 0, nightly: 100_000},
	"sinks with replicas":          {ci: 1, nightly: 2},  // redis-stream, bullmq
	"cluster faults":               {ci: 2, nightly: 12}, // of Redis; at every fourth one the replica misses the end

	"sinks that are disturbed":    {ci: 2, nightly: 7},
	"sinks that are timed so":     {ci: 0, nightly: 7}, // the tests beside them delay events at random
	"power cuts of NATS":          {ci: 0, nightly: 1},
	"brokers broken from outside": {ci: 0, nightly: 1},
	"services of AWS":             {ci: 0, nightly: 1}, // SNS, EventBridge; a relay before SQS; standard queues
	"parked keys under log-ins":   {ci: 0, nightly: 100_000},

	"hostile rows":                  {ci: 78, nightly: 200}, // of Kafka
	"hostile rows of other brokers": {ci: 0, nightly: 200},

	// Of the schema registry, for each format.
	"values read by Java":        {ci: 200, nightly: 100_000},
	"events without a registry":  {ci: 2_000, nightly: 100_000},
	"events of formats measured": {ci: 0, nightly: 200_000},

	// Of Postgres.
	"grants tried twice":      {ci: 0, nightly: 1}, // for rows that are marked, and for those that are deleted
	"migrations":              {ci: 5, nightly: 100},
	"large row megabytes":     {ci: 0, nightly: 600},
	"imported rows":           {ci: 800_000, nightly: 20_000_000},
	"sync standby seconds":    {ci: 3, nightly: 60}, // away
	"killed takeovers":        {ci: 1, nightly: 20},
	"killed takeover seconds": {ci: 10, nightly: 1},

	// Of the packages for other languages, each.
	"kills of a package":                 {ci: 0, nightly: 20},
	"kills before another broker":        {ci: 1, nightly: 20},
	"stops before another broker":        {ci: 0, nightly: 10},
	"contracts with handlers of asyncio": {ci: 0, nightly: 1},
	"restarts of a package's broker":     {ci: 0, nightly: 1},
	"kills of a Spring program":          {ci: 1, nightly: 20},
	"other programs with Spring":         {ci: 0, nightly: 1}, // with Boot 4, and that of the page
	"restores beneath a package":         {ci: 0, nightly: 1},
	"events at a package's rate":         {ci: 0, nightly: 20_000},
	"READMEs that are followed":          {ci: 0, nightly: 1}, // which installs from registries
	"pages of five minutes":              {ci: 0, nightly: 1}, // which installs from registries
	"every nth step dies in a run":       {ci: 8, nightly: 1},

	"chaos faults":  {ci: 12, nightly: 200},
	"verified rows": {ci: 20_000, nightly: 1_000_000},

	"topics named by rows": {ci: 400, nightly: 20_000},

	"pending rows of the view":   {ci: 5_000, nightly: 1_000_000},
	"journal rows to find among": {ci: 0, nightly: 50_000_000},
	"rows of a long journal":     {ci: 200_000, nightly: 50_000_000},
	"rows of a short journal":    {ci: 20_000, nightly: 1_000_000},
	"events to find":             {ci: 100, nightly: 1_000},
	"kills while finding":        {ci: 2, nightly: 10},

	"incidents walked through": {ci: 1, nightly: 5},

	"changes of a relay's file": {ci: 3, nightly: 50},
	"relays of a directory":     {ci: 0, nightly: 60},
	"ways out tried twice":      {ci: 0, nightly: 1}, // of an outbox that is left out: with a restart and without

	"tenants":                       {ci: 40, nightly: 2_000},
	"tenants whose rows are marked": {ci: 0, nightly: 1}, // by day they are kept
	"tenants' events a second":      {ci: 1_500, nightly: 5_000},
	"tenants' events between kills": {ci: 1_000, nightly: 25_000},
	"turns of a loud tenant":        {ci: 0, nightly: 25},
	"tables at rest":                {ci: 0, nightly: 2_000},
	"tables of a drain":             {ci: 0, nightly: 200},
	"events of a drain of tables":   {ci: 0, nightly: 100_000},
	"kills of tenants' relays":      {ci: 2, nightly: 12},

	"rows whose marks are weighed": {ci: 0, nightly: 100_000}, // in each of 12 turns

	// Of the simulator beside package store.
	"sequences of calls on SQL": {ci: 40, nightly: 20_000},
	"simulated runs on SQL":     {ci: 20, nightly: 5_000},
	"mutants caught twice":      {ci: 0, nightly: 1}, // by an invariant, and by SQL that differs

	// Of the Kafka driver alone, on three brokers; 0 = not in CI.
	"driver's connection cuts":     {ci: 300, nightly: 3_000},
	"driver's leader kills":        {ci: 2, nightly: 20},
	"driver's frozen leaders":      {ci: 0, nightly: 20},
	"driver's rolling restarts":    {ci: 0, nightly: 3},
	"driver's whole-cluster stops": {ci: 0, nightly: 4},
	"driver's mixed faults":        {ci: 0, nightly: 20},
	"damaged answers of NATS":      {ci: 50, nightly: 5_000},
	"damaged answers of RabbitMQ":  {ci: 30, nightly: 3_000},
	"damaged answers of Redis":     {ci: 100, nightly: 20_000},
	"damaged answers":              {ci: 2000, nightly: 200_000},
	"exchanges with damage":        {ci: 300, nightly: 20_000},
}

// Count is the number that the table gives to a scenario, for CI or, with CDC_RELAY_NIGHTLY=1, for the night.
func Count(t testing.TB, scenario string) int {
	t.Helper()
	row, known := scenarios[scenario]
	if !known {
		t.Fatalf("scenario %q is not in the table of scenarios", scenario)
	}
	if os.Getenv("CDC_RELAY_NIGHTLY") == "1" {
		return row.nightly
	}
	return row.ci
}
