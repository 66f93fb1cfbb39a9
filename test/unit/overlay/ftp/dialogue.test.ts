import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Dialogue } from "../../../../src/overlay/ftp/dialogue.ts";

/** A dialogue that replaces all data ports by 10.0.0.1:50000, and the announced ones. */
function talk(answer: () => string | undefined = () => "INSTEAD") {
  const announced: string[] = [];
  let failures = 0;
  const dialogue = new Dialogue({
    announced(passive, port) {
      announced.push(`${passive} ${port}`);
      return answer();
    },
    failed: () => void (failures += 1),
  });
  const bytes = (text: string): Uint8Array => Buffer.from(text, "latin1");
  const text = (passed: Uint8Array): string => Buffer.from(passed).toString("latin1");
  const says = (line: string): string => text(dialogue.request(bytes(line)));
  const receives = (line: string): string => text(dialogue.reply(bytes(line)));
  return { says, receives, announced, failures: () => failures };
}

/** The same after the greeting. */
function greeted(answer?: () => string | undefined) {
  const rig = talk(answer);
  expect(rig.receives("220 hello\r\n")).toBe("220 hello\r\n");
  return rig;
}

const PASV = "227 Entering Passive Mode (192,0,2,1,200,10).\r\n";
const EPSV = "229 Entering Extended Passive Mode (|||51210|)\r\n";
const REFUSED = /^502 [^\r\n]+\r\n$/;

describe("an FTP dialogue", () => {
  it.each([
    ["PASV\r\n", PASV, "PASV 51210"],
    ["pasv\n", "227 =192,0,2,1,200,10\r\n", "PASV 51210"],
    ["PASV\r\n", "227 Passive. 192,0,2,1,200,10\n", "PASV 51210"],
    ["EPSV\r\n", EPSV, "EPSV 51210"],
    ["EPSV 2\r\n", "229 ok (!!!51210!)\r\n", "EPSV 51210"],
    ["\xff\xf4\xff\xf2PASV\r\n", PASV, "PASV 51210"],
  ])("answers %j itself instead of the server with %j", (command, reply, expected) => {
    const { says, receives, announced } = greeted();
    expect(says(command)).toBe(command);
    expect(receives(reply)).toBe("INSTEAD\r\n");
    expect(announced).toEqual([expected]);
  });

  it.each(["227 (1,2,3,4,5)", "227 (1,2,3,4,5,256)", "227 (1,2,3,4,3,255)", "227 none", "227", "227 (1,2,3,4,0,22,7)"])(
    "refuses a 227 without a data port: %s",
    (reply) => {
      const { says, receives, announced } = greeted();
      says("PASV\r\n");
      expect(receives(`${reply}\r\n`)).toMatch(/^425 /);
      expect(announced).toEqual([]);
    },
  );

  it.each(["229 (|||70000|)", "229 (|||22|)", "229 (||||)", "229 (|1|10.0.0.9|5000|)", "229 (|||5000!)", "229 5000"])(
    "refuses a 229 without a data port: %s",
    (reply) => {
      const { says, receives, announced } = greeted();
      says("EPSV\r\n");
      expect(receives(`${reply}\r\n`)).toMatch(/^425 /);
      expect(announced).toEqual([]);
    },
  );

  it("reports that it cannot open one at the limit", () => {
    const { says, receives, announced } = greeted(() => undefined);
    says("PASV\r\n");
    expect(receives(PASV)).toMatch(/^425 /);
    expect(announced).toHaveLength(1);
  });

  it("passes an unrequested reply unchanged", () => {
    const { says, receives, announced } = greeted();
    expect(receives(PASV)).toBe(PASV);
    says("EPSV\r\n");
    expect(receives(PASV)).toBe(PASV);
    says("STAT\r\n");
    const listing = `213-files\r\n${PASV}213-${PASV}213 end\r\n`;
    says("PASV\r\n");
    expect(receives(listing)).toBe(listing);
    expect(announced).toEqual([]);
    // The client still waits for its answer.
    expect(receives(PASV)).toBe("INSTEAD\r\n");
  });

  it("reads several lines of a 227 as one reply, by its last line", () => {
    const { says, receives, announced } = greeted();
    says("PASV\r\n");
    expect(receives(`227-wait (1,2,3,4,9,9)\r\n more\r\n${PASV}`)).toBe("INSTEAD\r\n");
    expect(announced).toEqual(["PASV 51210"]);
  });

  it.each(["PORT 10,0,0,9,4,5", "EPRT |1|10.0.0.9|1029|", "LPRT 4,4", "LPSV", "AUTH TLS", "auth ssl", "SPSV"])(
    "answers %s with 502 in order, hidden from the server",
    (command) => {
      const { says, receives } = greeted();
      expect(says(`SYST\r\n${command}\r\nPWD\r\n`)).toBe("SYST\r\nNOOP\r\nPWD\r\n");
      expect(receives("215 UNIX\r\n")).toBe("215 UNIX\r\n");
      expect(receives("200-fine\r\n and\r\n200 NOOP\r\n")).toMatch(REFUSED);
      expect(receives('257 "/"\r\n')).toBe('257 "/"\r\n');
    },
  );

  it("counts answers: preliminary replies and the greeting answer nothing", () => {
    const { says, receives, announced } = talk();
    expect(says("USER a\r\nPASS b\r\nPASV\r\nRETR x\r\nPORT 1\r\n")).toContain("NOOP\r\n");
    const server = `120 soon\r\n220-hi\r\n220 there\r\n331 a?\r\n230 in\r\n${PASV}150 now\r\n226 done\r\n200 ok\r\n`;
    const lines = receives(server).split("\r\n");
    expect(lines.slice(0, 8)).toEqual([
      "120 soon",
      "220-hi",
      "220 there",
      "331 a?",
      "230 in",
      "INSTEAD",
      "150 now",
      "226 done",
    ]);
    expect(lines[8]).toMatch(/^502 /);
    expect(announced).toHaveLength(1);
  });

  it("lets a server refuse passive mode", () => {
    const { says, receives } = greeted();
    says("EPSV\r\nPASV\r\n");
    expect(receives("500 what?\r\n")).toBe("500 what?\r\n");
    expect(receives(PASV)).toBe("INSTEAD\r\n");
    // A statement and not a request.
    says("EPSV ALL\r\n");
    expect(receives("200 ok\r\n")).toBe("200 ok\r\n");
  });

  it("recovers when a server answers too much or too little", () => {
    const { says, receives, announced } = greeted();
    says("A\r\nB\r\nC\r\nPASV\r\n");
    expect(receives(PASV)).toBe("INSTEAD\r\n");
    receives("200 x\r\n200 y\r\n200 z\r\n");
    says("PASV\r\n");
    receives("200 late\r\n");
    expect(receives(PASV)).toBe("INSTEAD\r\n");
    expect(announced).toHaveLength(2);
  });

  it("passes everything else unchanged, any bytes in any pieces", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 }), (chunks) => {
        const { says, receives, failures } = greeted();
        const text = chunks.map((chunk) => Buffer.from(chunk).toString("latin1")).join("");
        const whole = text.slice(0, text.lastIndexOf("\n") + 1);
        fc.pre(!text.startsWith("\x16"));
        const passed = chunks.map((chunk) => receives(Buffer.from(chunk).toString("latin1"))).join("");
        expect(passed).toBe(whole);
        const sent = chunks.map((chunk) => says(Buffer.from(chunk).toString("latin1"))).join("");
        expect(sent.split("\n").length).toBe(whole.split("\n").length);
        expect(failures()).toBe(0);
      }),
    );
  });

  it("joins lines that come byte by byte", () => {
    const { says, receives, announced } = greeted();
    const sent = "AUTH TLS\r\nPASV\r\n".split("").map(says).join("");
    expect(sent).toBe("NOOP\r\nPASV\r\n");
    const received = `200 ok\r\n${PASV}`.split("").map(receives).join("");
    expect(received).toMatch(/^502 [^\r\n]+\r\nINSTEAD\r\n$/);
    expect(announced).toEqual(["PASV 51210"]);
  });

  it.each([
    ["a long line", "x".repeat(9000)],
    ["a long line that ends", `${"x".repeat(9000)}\r\n`],
    ["TLS from the start", "\x16\x03\x01\x02\x00\n"],
  ])("fails once with %s of the client, and passes nothing more", (_, bytes) => {
    const { says, receives, failures } = greeted();
    expect(says(bytes)).toBe("");
    expect(says("NOOP\r\n")).toBe("");
    expect(receives("200 ok\r\n")).toBe("");
    expect(failures()).toBe(1);
  });

  it("fails on an endless line of the server", () => {
    const { receives, failures } = greeted();
    for (let i = 0; i < 20; i += 1) receives("y".repeat(1000));
    expect(failures()).toBe(1);
  });

  it("forgets the oldest of many unanswered commands, and continues", () => {
    const { says, receives } = greeted();
    says("PORT 1\r\n".repeat(10_000));
    says("PASV\r\n");
    expect(receives(PASV)).toBe("INSTEAD\r\n");
    says("PWD\r\n");
    expect(receives("257 here\r\n")).toBe("257 here\r\n");
  });
});
