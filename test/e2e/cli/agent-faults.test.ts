import { describe, expect, it } from "vitest";
import { someStatus } from "../../support/fake-local-provider.ts";
import { httpAnswer, startRawAgent } from "../../support/control-plane/raw-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast } from "../../support/run-holdfast.ts";

describe("an agent that misbehaves", () => {
  it.each([
    { run: holdfast, verb: ["status"] },
    ...[["health"], ["logs"], ["trigger", "tg-ping"], ["reset-floor", "node"]].map((verb) => ({ run: runVerb, verb })),
  ])("and never answers $verb ends with 6", async ({ run, verb }) => {
    await using agent = await startRawAgent(() => undefined);
    const { code, stdout, stderr } = await run([...verb, "--timeout", "1", "--json", "--run", agent.runDir]);
    expect(code).toBe(6);
    expect(stderr).toMatch(/did not answer within 1 s: .*--timeout/);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: "timeout" } });
  });

  it("and stops in the middle ends with 6", async () => {
    await using agent = await startRawAgent(
      (socket) => void socket.write(httpAnswer('{"kind":"progress","seq":0,"channel":"stdout","data":"begun\\n"}\n')),
    );
    const { code, stdout } = await runVerb(["trigger", "tg-ping", "--timeout", "0.5", "--run", agent.runDir]);
    expect({ code, stdout }).toEqual({ code: 6, stdout: "begun\n" });
  });

  it.each([
    ["half an object", '{"schema":1,'],
    ["no JSON", "<html>hello</html>"],
    ["nothing", ""],
    ["another shape", '{"schema":1}'],
    ["another schema", JSON.stringify({ ...someStatus(), schema: 2 })],
    ["bad UTF-8", '"\ud800"'],
    ["deep nesting", "[".repeat(100_000)],
    ["a forbidden key", '{"__proto__":{}}'],
    ["a huge line", "x".repeat(17 * 1024 * 1024)],
  ])("and sends %s ends with 1", async (_what, body) => {
    await using agent = await startRawAgent((socket) => void socket.end(httpAnswer(body)));
    const { code, stdout, stderr } = await runVerb(["status", "--json", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: "invalid-reply" } });
    expect(stderr.trim().split("\n")).toHaveLength(1);
    expect(stderr.length).toBeLessThan(1000);
  });

  it.each([
    ["bad JSON", "{]\n"],
    ["a huge line", "x".repeat(17 * 1024 * 1024)],
    ["another shape", '{"kind":"surprise"}\n'],
  ])("and sends %s in a stream ends with 1, after the valid lines", async (_what, body) => {
    const good = '{"kind":"progress","seq":0,"channel":"stdout","data":"good\\n"}\n';
    await using agent = await startRawAgent((socket) => void socket.end(httpAnswer(good + body)));
    const { code, stdout, stderr } = await runVerb(["trigger", "tg-ping", "--run", agent.runDir]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "good\n" });
    expect(stderr).toMatch(/^holdfast: the agent.*\n$/);
  });

  it("and ends a trigger without a result ends with 1", async () => {
    await using agent = await startRawAgent((socket) => void socket.end(httpAnswer("\n")));
    const { code, stderr } = await runVerb(["trigger", "tg-ping", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain("without a result");
  });

  it.each([
    ["closes at once", (): string => ""],
    ["closes in the head", (): string => "HTTP/1.1 200 OK\r\ncontent-"],
    ["closes in the body", (): string => 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"schema"'],
  ])("and %s is unreachable", async (_what, text) => {
    await using agent = await startRawAgent((socket) => void socket.end(text()));
    const { code, stderr } = await runVerb(["status", "--run", agent.runDir]);
    expect(code).toBe(3);
    expect(stderr).toMatch(/^holdfast: no agent answers on .*\n$/);
  });

  it("and does not speak HTTP ends with 1", async () => {
    await using agent = await startRawAgent((socket) => void socket.end("SSH-2.0-OpenSSH_9.9\r\n"));
    const { code, stderr } = await runVerb(["status", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain("does not speak HTTP");
  });

  it("and answers an error without its form ends with 1", async () => {
    await using agent = await startRawAgent(
      (socket) => void socket.end(httpAnswer("oops", "500 Internal Server Error")),
    );
    expect((await runVerb(["status", "--run", agent.runDir])).code).toBe(1);
  });
});
