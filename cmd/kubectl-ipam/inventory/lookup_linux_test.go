package inventory

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// threadTime returns the processor time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	const thisThread = 1 // RUSAGE_THREAD
	var used syscall.Rusage
	if err := syscall.Getrusage(thisThread, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The time of Who for the whole address space grows with the number of answers, not with
// its square: four times as many claims, pools that reserve networks, and releases. It is
// processor time of this thread, so that other work of the machine does not count.
func TestWho_TimeGrowsLinearly(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fastest := func(pools int) (least time.Duration, answers int) {
		i := largeInventory(pools)
		for range 5 {
			began := threadTime(t)
			answers = len(i.Who("", mustRange(t, "0.0.0.0/0")))
			if took := threadTime(t) - began; least == 0 || took < least {
				least = took
			}
		}
		return least, answers
	}
	few, fewAnswers := fastest(5)
	many, answers := fastest(20)
	t.Logf("%d answers in %s, %d in %s", fewAnswers, few, answers, many)
	if answers < 20_000 {
		t.Errorf("%d answers, want at least 20,000", answers)
	}
	if many > 10*few {
		t.Errorf("%d answers take %s, and %d take %s", fewAnswers, few, answers, many)
	}
}
