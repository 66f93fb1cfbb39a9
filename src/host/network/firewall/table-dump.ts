import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { eachAttribute, eachOfAnswer, FAMILY_BYTES, Get, type Message } from "../netlink/nft-messages.ts";
import { openNftSocket, type NftSocket } from "../netlink/nft-socket.ts";

/** A table in the kernel: its comment, and a digest of its content without handles, uses and counters. */
export type TableContent =
  | { readonly isThere: false }
  | { readonly isThere: true; readonly comment: string; readonly digest: string };

/** The nf_tables of this network namespace. */
export interface KernelTables {
  /** Reads a table of the family `inet`; undefined if only nft(8) can read it. */
  read(table: string): TableContent | undefined;
}

const ATTEMPTS = 5;
/** NFTA_*_TABLE is the first attribute of every kind, and NFTA_SET_NAME the second. */
const TABLE = 1;
const SET_NAME = 2;
const GENERATION_ID = 1;
const TABLE_USERDATA = 6;
const RULE_EXPRESSIONS = 4;
const ELEMENTS = 3;
const ELEMENT = { expiration: 5, expression: 7, expressions: 11 } as const;
const EXPRESSION = { name: 1, data: 2 } as const;
const COUNTER = Buffer.from("counter\0");

/** The parts of a table besides elements, and their attributes that change by themselves: handles, uses, counts and positions. */
const PARTS = [
  { get: Get.chain, transient: [2, 6, 8] },
  { get: Get.set, transient: [16, 20] },
  { get: Get.rule, transient: [3, 6] },
  { get: Get.object, transient: [5, 6] },
  { get: Get.flowtable, transient: [4, 5] },
] as const;

/** Reads a table from the kernel within one generation. Thousands of elements take some milliseconds; nft(8) takes ten times that. */
export const kernelTables: KernelTables = {
  read(table) {
    using socket = openNftSocket();
    if (socket === undefined) return undefined;
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const generation = generationOf(socket);
      const dump = dumpTable(socket, table);
      if (generation === undefined || dump === undefined) return undefined;
      if (dump !== "changed" && generationOf(socket) === generation) return dump;
    }
    return undefined;
  },
};

function generationOf(socket: NftSocket): number | undefined {
  let generation: number | undefined;
  const asked = socket.ask(Get.generation, false, [], (answer) => {
    eachOfAnswer(answer, (type, from, to) => {
      if (type === GENERATION_ID && to - from === 4) generation = answer.body.readUInt32BE(from);
    });
  });
  return asked === "whole" ? generation : undefined;
}

function dumpTable(socket: NftSocket, table: string): TableContent | "changed" | undefined {
  const hash = createHash("sha256");
  let comment = "";
  const asked = socket.ask(Get.table, false, [table], (answer) => {
    eachOfAnswer(answer, (type, from, to) => {
      if (type === TABLE_USERDATA) comment = answer.body.toString("latin1", from, to);
    });
    hash.update(stable(answer, [3, 4]));
  });
  if (asked === "absent") return { isThere: false };
  if (asked !== "whole") return asked;
  const own = Buffer.from(`${table}\0`);
  for (const { get, transient } of PARTS) {
    const sets: string[] = [];
    const done = socket.ask(get, true, [table], (answer) => {
      if (!isIn(answer, own)) return;
      if (get === Get.set) sets.push(nameAt(answer, SET_NAME));
      // Few rules have counters, and inspecting all expressions takes longer than reading them.
      if (get === Get.rule && answer.body.includes(COUNTER)) quietExpressions(answer);
      hash.update(stable(answer, transient));
    });
    if (done !== "whole") return done === "absent" ? "changed" : done;
    for (const set of sets) {
      const elements: string[] = [];
      const listed = socket.ask(Get.element, true, [table, set], (answer) => {
        for (const element of elementsOf(answer)) elements.push(element);
      });
      if (listed !== "whole") return listed === "absent" ? "changed" : listed;
      // The order of a hash set differs each time.
      hash.update(`${set}\0${elements.sort().join("\0")}\0`, "latin1");
    }
  }
  return { isThere: true, comment, digest: hash.digest("base64url") };
}

/**
 * Returns the attributes of a message with zeros for values that change by themselves, replaced in place, because there may be
 * thousands.
 */
function stable(answer: Message, transient: readonly number[]): Buffer {
  const { body } = answer;
  eachOfAnswer(answer, (type, from, to) => {
    if (transient.includes(type)) body.fill(0, from, to);
  });
  // The generation precedes them.
  return body.subarray(FAMILY_BYTES);
}

/** Reports whether a message is about that table; its name ends with a zero byte. */
function isIn(answer: Message, table: Buffer): boolean {
  const { body } = answer;
  let isOwn = false;
  eachOfAnswer(answer, (type, from, to) => {
    if (type === TABLE) isOwn = body.compare(table, 0, table.length, from, to) === 0;
  });
  return isOwn;
}

function nameAt(answer: Message, wanted: number): string {
  let name = "";
  eachOfAnswer(answer, (type, from, to) => {
    if (type === wanted) name = answer.body.toString("utf8", from, to - 1);
  });
  return name;
}

function elementsOf(answer: Message): readonly string[] {
  const { body } = answer;
  const elements: string[] = [];
  eachOfAnswer(answer, (list, first, last) => {
    if (list !== ELEMENTS) return;
    eachAttribute(body, first, last, (_, from, to) => {
      eachAttribute(body, from, to, (type, start, end) => {
        if (type === ELEMENT.expression) quietExpression(body, start, end);
        else if (type === ELEMENT.expressions) quietList(body, start, end);
        else if (type === ELEMENT.expiration) body.fill(0, start, end);
      });
      elements.push(body.toString("latin1", from, to));
    });
  });
  return elements;
}

function quietExpressions(answer: Message): void {
  eachOfAnswer(answer, (type, from, to) => {
    if (type === RULE_EXPRESSIONS) quietList(answer.body, from, to);
  });
}

function quietList(bytes: Buffer, from: number, to: number): void {
  eachAttribute(bytes, from, to, (_, start, end) => quietExpression(bytes, start, end));
}

/** Replaces a counter's value by zeros. */
function quietExpression(bytes: Buffer, from: number, to: number): void {
  let isCounter = false;
  eachAttribute(bytes, from, to, (type, start, end) => {
    if (type === EXPRESSION.name) isCounter = bytes[start] === COUNTER[0] && COUNTER.equals(bytes.subarray(start, end));
    else if (type === EXPRESSION.data && isCounter) bytes.fill(0, start, end);
  });
}
