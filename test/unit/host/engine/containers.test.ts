import { expect, test } from "vitest";
import { summary } from "../../../../src/host/engine/containers.ts";
import { parseEvent } from "../../../../src/host/engine/events.ts";
import { secondsOf } from "../../../../src/host/engine/output.ts";
import { inPath } from "../../../../src/host/engine/parse.ts";

const ROW = { Id: "a", Names: ["/n"], ImageID: "i", Image: "r", Labels: {}, State: "running", Status: "", Created: 7 };

test("reads health and exit code from the text of the list", () => {
  const output: readonly (readonly [string, string, unknown])[] = [
    ["running", "Up 2 minutes", {}],
    ["running", "Up 2 minutes (healthy)", { health: "healthy" }],
    ["running", "Up 2 minutes (unhealthy)", { health: "unhealthy" }],
    ["running", "Up 1 second (health: starting)", {}],
    ["running", "Up 2 minutes (Paused)", {}],
    ["exited", "Exited (137) 3 days ago", { exitCode: 137 }],
    ["exited", "Exited", {}],
    ["dead", "Exited (1) now", { exitCode: 1 }],
    ["restarting", "Restarting (3) 1 second ago", {}],
    ["created", "Created", {}],
    ["stopped", "Exited (0) now", { state: "exited", exitCode: 0 }],
    ["something", "", { state: "dead" }],
    ["constructor", "", { state: "dead" }],
  ];
  for (const [State, Status, expected] of output) {
    const known = { state: State, health: undefined, exitCode: undefined };
    expect(summary({ ...ROW, State, Status }), Status).toMatchObject(Object.assign(known, expected));
  }
});

test("lists the existing addresses", () => {
  const NetworkSettings = { Networks: { one: { IPAddress: "10.0.0.2" }, none: { IPAddress: "" }, gone: null } };
  expect(summary({ ...ROW, NetworkSettings }).addresses).toEqual({ one: "10.0.0.2" });
});

test("events have their time in milliseconds, and others are skipped", () => {
  const line =
    '{"status":"die","Type":"container","Action":"die","Actor":{"ID":"a","Attributes":{"exitCode":"3"}},"time":5,"timeNano":5000000001}';
  expect(parseEvent(line)).toEqual({
    kind: "container",
    action: "die",
    id: "a",
    attributes: { exitCode: "3" },
    at: 5000,
  });
  expect(parseEvent(line.replace('"Type":"container"', '"Type":"plugin"'))).toBeUndefined();
  expect(parseEvent("  ")).toBeUndefined();
  for (const wrong of ["x", "{}", "[]"]) expect(() => parseEvent(wrong)).toThrow("an event of the engine");
});

test("converts times to seconds with nanoseconds", () => {
  expect(secondsOf("2026-01-01T00:00:00.12Z")).toBe("1767225600.120000000");
  expect(secondsOf("2026-01-01T00:00:01Z", 1)).toBe("1767225600.000000000");
  for (const none of ["0001-01-01T00:00:00Z", "", "no"]) expect(secondsOf(none)).toBe("0");
});

test("a name never becomes another path", () => {
  expect(inPath("127.0.0.1:5000/a/b@sha256:00")).toBe("127.0.0.1:5000/a/b@sha256:00");
  expect(inPath("a?b#c d%2f")).toBe("a%3Fb%23c%20d%252f");
  for (const wrong of ["", "..", "a/../b", "a//b", "./a", "a/"])
    expect(() => inPath(wrong)).toThrow("container engine");
});
