package simulator

import "time"

// J8: who may raise the epoch, and who may begin requests.

// judgeRequest fails if a process begins a request though another one has taken the slot over (J8). One that was frozen
// when its connection broke, and has just gone on, cannot know; nor can one whose stream ended behind what it has not
// read, until an answer to SQL tells it or its proof of the lease is too old.
func (w *world) judgeRequest(p *process, asked time.Time) {
	w.judgeWithin(p, asked, w.profile.kind.stint())
}

// alone reports that the process cannot know that it has lost the slot: its stream ended behind what it has not read.
// What it has begun when it learns of that goes on for a stint.
func (w *world) alone(p *process, stint time.Duration) bool {
	proved := time.Duration(w.profile.config.Postgres.WALSenderTimeout) / 2
	return !p.leftAlone.IsZero() && time.Since(p.leftAlone) <= proved &&
		(p.learnt.Before(w.takenAt) || time.Since(p.learnt) <= stint)
}

// judgeWithin is judgeRequest for what may begin so long after the driver was asked to send.
func (w *world) judgeWithin(p *process, asked time.Time, stint time.Duration) {
	if w.alone(p, stint) {
		w.counts.LeftAlone++
		return
	}
	if w.serials > p.serial && time.Since(w.takenAt) > stint && time.Since(asked) == 0 && time.Since(p.woke) > stint {
		w.violate("p%d begins a request %v after another process took the slot over", p.number, time.Since(w.takenAt))
	}
}

// judgeAttempt fails if a process goes on with a batch of the time before another process had the slot (J8).
func (w *world) judgeAttempt(p *process, a *attempts) {
	for serial := a.serial + 1; serial < p.serial; serial++ {
		if w.takers[serial-1] != p {
			w.violate("p%d sends a batch again that it began before p%d took the slot over", p.number, w.takers[serial-1].number)
		}
	}
}

// judgeTakeOver fails if the epoch is raised by a process that the slot was not granted to (J8).
func (w *world) judgeTakeOver(p *process, slotName string, pid uint32) {
	if w.unjudged {
		return
	}
	slot := w.server.slots[slotName]
	if slot == nil || slot.holder == nil || slot.holder.grant.PID != int64(pid) || slot.holder.p != p {
		w.violate("p%d raises the epoch and does not hold the slot", p.number)
	}
}
