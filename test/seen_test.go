package test

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// TestEveryTestWasSeenToFail: a test that nobody has seen fail may test nothing. Seen to fail with the phrase taken out of
// a comment, an entry taken out of the record, a function of an entry renamed, and a test of notSeenYet that was seen.
func TestEveryTestWasSeenToFail(t *testing.T) {
	const record = "mutate/seen.tsv"
	code, err := seen.Read("..")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := seen.Load(record)
	if err != nil {
		t.Fatal(err)
	}
	var unseen []string
	for _, u := range code.Unseen(entries) {
		name := u.Package + " " + u.Name
		unseen = append(unseen, name)
		if !slices.Contains(notSeenYet, name) {
			t.Errorf("%s does not say what it was seen to fail with. Break the code under it, see it fail, and say so in its comment "+
				"(\"Seen to fail with …\"); or let `make mutate ARGS=%s` find a change, and commit test/%s", name, u.Package, record)
		}
	}
	for _, name := range notSeenYet {
		if !slices.Contains(unseen, name) {
			t.Errorf("%s was seen to fail by now, or is gone: take it out of notSeenYet", name)
		}
	}
	for _, e := range entries {
		if why := code.Stale(e); why != "" {
			t.Errorf("test/%s: %s %s: %s. `make mutate ARGS=-tidy` takes the line out; a test that needs one gets it from `make mutate ARGS=%s`, or says it in its comment",
				record, e.Package, e.Test, why, e.Package)
		}
	}
}

// notSeenYet are the tests, all on real servers, of which nobody has noted it yet: package and name. The list only shrinks.
var notSeenYet = []string{
	"admin TestConsoleShowsWhatFlows",
	"cmd/cdc-relay TestBenchMeasuresJudgesAndLeavesNothing",
	"cmd/cdc-relay TestCheckRunAndVerifyWithRealKafka",
	"cmd/cdc-relay TestDeadLettersByCommand",
	"cmd/cdc-relay TestDryRunPrintsAndLeavesEverythingToTheRelay",
	"cmd/cdc-relay TestFormatsFromTableToAudit",
	"cmd/cdc-relay TestInitDoesNotReplaceALostSlot",
	"cmd/cdc-relay TestInitHaltsBeforeALargeCatchUp",
	"cmd/cdc-relay TestReplayOfTenThousandSurvivesKill9",
	"cmd/cdc-relay TestRetentionDeletesMarkedAndKeptRows",
	"cmd/cdc-relay TestRunRelaysAndStopsOnSIGTERM",
	"cmd/cdc-relay TestSlotAndReconcile",
	"cmd/cdc-relay TestVerifyFindsEachKindOfDifference",
	"cmd/cdc-relay TestVerifyWaitsForWhatIsOnItsWay",
	"relay TestFencedSessionEndsThoughNothingComes",
	"relay TestHaltThatExitsRecordsWhatWasSent",
	"relay TestIdleRelayHasMirroredAndConfirmedEverything",
	"sink/kafka TestKafkaCountsBytesAsWeDo",
	"sink/kafka TestKafkaKnowsTheBatchAgainAfterAKill",
	"sink/kafka TestKafkaLogins",
	"sink/kafka TestKafkaNamesTheGuiltyRecords",
	"sink/kafka TestKafkaTakesTheSequenceWrap",
	"sink/kafka TestWindowOf32MiBCostsLessThan48",
	"store TestMeasureJournalShapes",
	"test TestDriftUnderLoadLosesNothingAndKeepsTheOrder",
	"test TestInvalidatedSlotLosesNothingAndKeepsTheOrder",
	"test/harness TestClusterOutlivesItsLeader",
	"test/harness TestKafkaTakesRecordsAtOnce",
	"test/harness TestOwnKafkaSurvivesEveryKindOfEnd",
	"test/harness TestOwnPostgresCanBeKilledWithoutHarmToOthers",
	"test/harness TestTruthIsWhatPostgresDecodes",
	"test/harness TestTruthSurvivesCrashesOfPostgres",
	"test/harness TestWorkloadKeepsItsRate",
	"test/harness TestWriterCommitsWhatACrashLeftPrepared",
}
