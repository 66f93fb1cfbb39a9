import { describe, expect, test } from "vitest";
import { AnswerWatch, unansweredText } from "../../../../src/agent/session/answers.ts";

describe("unanswered requests", () => {
  test("are named until answered, and end the session after a minute without any answer", () => {
    const watch = new AnswerWatch();
    watch.begin();
    expect(watch.note("shadow.report", "unanswered", 0)).toBe(false);
    expect(watch.note("shadow.report", "unanswered", 30_000)).toBe(false);
    expect(watch.failing(30_000).map(unansweredText)).toEqual([
      "the control plane does not answer shadow.report (2 requests)",
    ]);
    expect(watch.note("document.get", "nonsense", 60_000)).toBe(true);
    watch.begin();
    expect(watch.note("document.get", "nonsense", 70_000)).toBe(false);
    expect(watch.failing(70_000).map(({ method, since }) => [method, since])).toEqual([
      ["shadow.report", 0],
      ["document.get", 60_000],
    ]);
    watch.note("shadow.report", "answered", 80_000);
    watch.note("document.get", "answered", 80_000);
    expect(watch.failing(80_000)).toEqual([]);
  });

  test("of one method do not end a session that answers others", () => {
    const watch = new AnswerWatch();
    for (let at = 0; at < 600_000; at += 30_000) {
      expect(watch.note("registry.token", "unanswered", at)).toBe(false);
      watch.note("shadow.report", "answered", at);
    }
    expect(watch.failing(600_000)).toMatchObject([{ method: "registry.token", count: 20 }]);
    expect(watch.failing(1_300_000)).toEqual([]);
  });
});
