// No test runs this one: where the project is built there is no .NET. It is the Java consumer, line by line, with Npgsql.
using System.Data;
using System.Text;
using Npgsql;
using NpgsqlTypes;

/// <summary>
/// Handles each event once, in its key's order. Messages come as lines on standard input, their fields apart by tabs: put
/// your Kafka client's loop there, and commit its offset behind what was handled.
/// </summary>
static class Consumer
{
    const string Name = "billing";
    const int MaxAttempts = 5;

    record Message(string Id, string Topic, int Partition, long Offset, string Key, string Payload);

    static async Task Effect(NpgsqlConnection c, NpgsqlTransaction tx, string key, string payload)
    {
        if (payload.Contains("\"fails\"")) throw new InvalidOperationException("no such customer");
        await using var s = new NpgsqlCommand(
            "INSERT INTO invoice (customer, seq) VALUES ($1, ($2::jsonb ->> 'seq')::int)", c, tx)
        {
            Parameters = { new() { Value = key }, new() { Value = payload } }
        };
        await s.ExecuteNonQueryAsync();
    }

    /// <summary>Decides a message: it has had its effect, or is parked, when this returns.</summary>
    static async Task Handle(NpgsqlConnection c, Message m)
    {
        try
        {
            await using var tx = await c.BeginTransactionAsync();
            await using var claim = new NpgsqlCommand("SELECT inbox_claim($1, $2, $3, $4, $5)", c, tx)
            {
                Parameters =
                {
                    new() { Value = Name }, new() { Value = m.Id }, new() { Value = m.Topic },
                    new() { Value = m.Partition }, new() { Value = Encoding.UTF8.GetBytes(m.Key) }
                }
            };
            var state = (string)(await claim.ExecuteScalarAsync())!;
            if (state == "new") await Effect(c, tx, m.Key, m.Payload);
            if (state == "behind") await Park(c, tx, m, "", null); // no time: it waits for the one before it
            await Commit(c, tx);
        }
        catch (Exception e) when (c.State == ConnectionState.Open) // the event's fault; without a session it comes again
        {
            await using var tx = await c.BeginTransactionAsync(); // the first one was rolled back when it was disposed of
            await Park(c, tx, m, e.Message, 0.05);
            await tx.CommitAsync();
        }
    }

    static async Task Park(NpgsqlConnection c, NpgsqlTransaction tx, Message m, string error, double? seconds)
    {
        await using var s = new NpgsqlCommand("""
            SELECT inbox_park($1, $2, topic => $3, partition => $4, "offset" => $5, key => $6, value => $7, error => $8,
                next_at => now() + $9 * interval '1 second')
            """, c, tx)
        {
            Parameters =
            {
                new() { Value = Name }, new() { Value = m.Id }, new() { Value = m.Topic }, new() { Value = m.Partition },
                new() { Value = m.Offset }, new() { Value = Encoding.UTF8.GetBytes(m.Key) },
                new() { Value = Encoding.UTF8.GetBytes(m.Payload) }, new() { Value = error },
                new() { Value = (object?)seconds ?? DBNull.Value, NpgsqlDbType = NpgsqlDbType.Double }
            }
        };
        await s.ExecuteNonQueryAsync();
    }

    /// <summary>Tries a parked event whose time has come, and returns whether there was one.</summary>
    static async Task<bool> Retry(NpgsqlConnection c)
    {
        string id = "", key, payload;
        var attempts = 0;
        try
        {
            await using var tx = await c.BeginTransactionAsync();
            await using (var take = new NpgsqlCommand("SELECT id, key, value, attempts FROM inbox_take($1)", c, tx)
                { Parameters = { new() { Value = Name } } })
            await using (var row = await take.ExecuteReaderAsync())
            {
                if (!await row.ReadAsync()) return false;
                id = row.GetString(0);
                key = Encoding.UTF8.GetString(row.GetFieldValue<byte[]>(1));
                payload = Encoding.UTF8.GetString(row.GetFieldValue<byte[]>(2));
                attempts = row.GetInt32(3);
            }
            await Effect(c, tx, key, payload);
            await using var done = new NpgsqlCommand("SELECT inbox_done($1, $2)", c, tx)
                { Parameters = { new() { Value = Name }, new() { Value = id } } };
            await done.ExecuteScalarAsync();
            await Commit(c, tx);
        }
        catch (Exception e) when (c.State == ConnectionState.Open && id != "")
        {
            await using var failed = new NpgsqlCommand(
                "SELECT inbox_failed($1, $2, $3, now() + $4 * interval '1 second')", c)
            {
                Parameters =
                {
                    new() { Value = Name }, new() { Value = id }, new() { Value = e.Message },
                    new() // null: a dead letter
                    {
                        Value = attempts + 1 < MaxAttempts ? 0.05 : (object)DBNull.Value, NpgsqlDbType = NpgsqlDbType.Double
                    }
                }
            };
            await failed.ExecuteScalarAsync();
        }
        return true;
    }

    /// <summary>Commits. The query fails if a statement failed and the handler went on: Postgres would roll back.</summary>
    static async Task Commit(NpgsqlConnection c, NpgsqlTransaction tx)
    {
        await using var s = new NpgsqlCommand("SELECT 1", c, tx);
        await s.ExecuteScalarAsync();
        await tx.CommitAsync();
    }

    static async Task<bool> Waits(NpgsqlConnection c)
    {
        await using var s = new NpgsqlCommand("SELECT EXISTS (SELECT FROM inbox_parked)", c);
        return (bool)(await s.ExecuteScalarAsync())!;
    }

    static async Task Main()
    {
        await using var c = new NpgsqlConnection(Environment.GetEnvironmentVariable("DATABASE_URL"));
        await c.OpenAsync();
        while (Console.In.ReadLine() is { } line)
        {
            var f = line.Split('\t', 6);
            await Handle(c, new Message(f[0], f[1], int.Parse(f[2]), long.Parse(f[3]), f[4], f[5]));
            while (await Retry(c)) { }
        }
        while (await Waits(c)) // one that goes on looks now and then
        {
            if (!await Retry(c)) await Task.Delay(10);
        }
    }
}
