// Package harness gives tests real servers: a Postgres and a Kafka per test process, or their own when they want to
// break them, and the relay as a child process. It also generates load whose outcome is known and consumes topics
// independently of the relay, for package verify to judge.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// What a machine lacks makes a test skip with a loud line; with CI=true it fails. These variables change what is used:
//
//	CDC_RELAY_TEST_KAFKA=host:port       a running Kafka instead of a started one, for tests that share it
//	CDC_RELAY_TEST_POSTGRES_VERSION=17   a major version of Postgres, downloaded if it is not installed
//	CDC_RELAY_TEST_BUILT=/a/folder       where programs are built once for several test processes
//	CDC_RELAY_TEST_DATA=/a/folder        where Postgres and Kafka keep their data, instead of among temporary files
//	CDC_RELAY_TEST_QUICK=1               leave out the tests that begin with Full, as make test does
//	CDC_RELAY_NIGHTLY=1                  the nightly counts of the scenarios, see Count
//	CDC_RELAY_TEST_KEEP=1                keep the directories of the relays for a look at their logs
//	CDC_RELAY_TEST_MISSING=/a/file       add a line for each test that is skipped because the machine lacks something
package harness
