package io.github.cdcrelay.inbox;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;

/** Messages of a partition that wait, those of one key in order. Threads take portions of them. */
final class Lanes {
    /** Messages to decide, and the rest of their last lane: give it back when they are decided. */
    record Portion(List<Read> reads, List<Read> rest) {}

    private final Deque<List<Read>> waiting = new ArrayDeque<>(); // guarded by this

    /** Those without a key have no order. */
    Lanes(List<Read> reads) {
        var lanes = new LinkedHashMap<Object, List<Read>>();
        for (var r : reads) {
            var key = r.message.key();
            Object lane = key == null ? r.message.offset() : ByteBuffer.wrap(key);
            lanes.computeIfAbsent(lane, name -> new ArrayList<>()).add(r);
        }
        waiting.addAll(lanes.values());
    }

    synchronized int size() {
        return waiting.size();
    }

    synchronized Portion take(int most) {
        var reads = new ArrayList<Read>();
        List<Read> rest = List.of();
        while (!waiting.isEmpty() && reads.size() < most) {
            var lane = waiting.pop();
            int room = Math.min(lane.size(), most - reads.size());
            reads.addAll(lane.subList(0, room));
            rest = lane.subList(room, lane.size());
        }
        return new Portion(reads, rest);
    }

    synchronized void giveBack(List<Read> rest) {
        if (!rest.isEmpty()) {
            waiting.push(rest);
        }
    }
}
