import { isIPv4 } from "node:net";
import { toError } from "../../errors.ts";
import { momentText } from "../../protocol/local/known-time.ts";
import { judgeLicense } from "./license.ts";
import { addressOf, isInside, prefixLength, type Wan } from "./wan.ts";
import { defined } from "../../lib/defined.ts";

/** Facts known before the first question. */
export interface Facts {
  /** The interfaces of this machine that may be the WAN. */
  readonly nics: readonly string[];
  /** Proxy of the local settings, without its password. */
  readonly proxy: string | undefined;
  readonly noProxy: readonly string[];
  /** Reason why the network cannot be configured here; undefined if it can. */
  readonly whyNoNetwork: string | undefined;
  readonly isRegistered: boolean;
  /** The wall clock, and the lower bound of the current time, in Unix milliseconds. */
  readonly now: number;
  readonly least: number;
}

/** Parsed answers so far. */
export interface Answers {
  readonly nic?: string;
  readonly ip?: string;
  readonly length?: number;
  readonly gateway?: string;
  readonly dns?: readonly string[];
  /** The WAN settings, once all their questions are answered. */
  readonly wan?: Wan;
  /** Null removes the setting; undefined keeps it. */
  readonly proxy?: string | null;
  readonly noProxy?: readonly string[];
  /** Unix milliseconds to set the clock to. */
  readonly time?: number;
  readonly license?: string;
}

export type QuestionId =
  | "nic"
  | "method"
  | "ip"
  | "mask"
  | "gateway"
  | "dns"
  | "proxy"
  | "noProxy"
  | "time"
  | "license";

/** Result of an answer: the next question, a file to read instead, or why it is invalid. */
export type Parsed =
  | { readonly is: "answer"; readonly answers: Answers; readonly next: QuestionId | "done" }
  | { readonly is: "file"; readonly path: string }
  | { readonly is: "wrong"; readonly why: string };

export interface Question {
  /** The question's step, which is shown as a heading before its first question. */
  readonly step: "network" | "proxy" | "time" | "license";
  ask(answers: Answers, facts: Facts): string;
  parse(text: string, answers: Answers, facts: Facts): Parsed;
}

const wrong = (why: string): Parsed => ({ is: "wrong", why });
const go = (answers: Answers, next: QuestionId | "done"): Parsed => ({ is: "answer", answers, next });

/** Every question of the dialogue; the network's come first, unless it cannot be set. */
export const questions: Readonly<Record<QuestionId, Question>> = {
  nic: {
    step: "network",
    ask: (_, { nics }) => `Interface of the WAN (${nics.join(", ")}; Enter leaves the network as it is): `,
    parse(text, answers, { nics }) {
      if (text === "") return go(answers, "proxy");
      return nics.includes(text)
        ? go({ ...answers, nic: text }, "method")
        : wrong(`there is no interface ${text}: one of ${nics.join(", ")}`);
    },
  },
  method: {
    step: "network",
    ask: () => "Address by DHCP, or static? (dhcp, static) [dhcp]: ",
    parse(text, answers) {
      if (text === "" || text === "dhcp") return go({ ...answers, wan: { nic: answers.nic ?? "", dns: [] } }, "proxy");
      return text === "static" ? go(answers, "ip") : wrong("answer dhcp or static");
    },
  },
  ip: {
    step: "network",
    ask: () => "IPv4 address, such as 192.0.2.10/24: ",
    parse(text, answers) {
      const found = addressOf(text);
      if (found === undefined) return wrong("that is not the IPv4 address of a machine, such as 192.0.2.10/24");
      const { ip, length } = found;
      return length === undefined ? go({ ...answers, ip }, "mask") : go({ ...answers, ip, length }, "gateway");
    },
  },
  mask: {
    step: "network",
    ask: () => "Mask or prefix length (255.255.255.0 or 24) [24]: ",
    parse(text, answers) {
      const length = prefixLength(text === "" ? "24" : text);
      return length === undefined
        ? wrong("that is neither a mask such as 255.255.255.0 nor a length from 1 to 32")
        : go({ ...answers, length }, "gateway");
    },
  },
  gateway: {
    step: "network",
    ask: () => "Gateway (Enter for none): ",
    parse(text, answers) {
      if (text === "") return go(answers, "dns");
      if (!isIPv4(text)) return wrong("that is not an IPv4 address");
      if (text === answers.ip) return wrong("that is this machine's own address");
      if (!isInside(ipOf(answers), text)) return wrong(`it is not in the network of ${ipOf(answers)}`);
      return go({ ...answers, gateway: text }, "dns");
    },
  },
  dns: {
    step: "network",
    ask: () => "Name servers, separated by blanks (Enter for none): ",
    parse(text, answers) {
      const dns = text.split(/[\s,]+/).filter((part) => part !== "");
      const bad = dns.find((server) => addressOf(server) === undefined || server.includes("/"));
      if (bad !== undefined) return wrong(`${bad} is not the IPv4 address of a machine`);
      const { nic = "", gateway } = answers;
      const fixed = { ip: ipOf(answers), ...defined({ gateway }) };
      return go({ ...answers, wan: { nic, fixed, dns } }, "proxy");
    },
  },
  proxy: {
    step: "proxy",
    ask: (_, { proxy }) =>
      `Proxy, such as http://192.0.2.1:3128 (${proxy === undefined ? "Enter for none" : `Enter keeps ${proxy}, none takes it away`}): `,
    parse(text, answers, { proxy }) {
      if (text === "") return go(answers, proxy === undefined ? "time" : "noProxy");
      if (text === "none") return go({ ...answers, proxy: null }, "time");
      if (!URL.canParse(text) || new URL(text).protocol !== "http:")
        return wrong("a proxy is an http:// address with its port");
      return go({ ...answers, proxy: text }, "noProxy");
    },
  },
  noProxy: {
    step: "proxy",
    ask: (_, { noProxy }) =>
      `Hosts to reach without it, separated by commas (Enter ${noProxy.length === 0 ? "for none" : `keeps ${noProxy.join(",")}`}): `,
    parse(text, answers) {
      if (text === "") return go(answers, "time");
      const noProxy = text
        .split(",")
        .map((rule) => rule.trim().toLowerCase())
        .filter((rule) => rule !== "");
      return noProxy.length > 256 || noProxy.some((rule) => rule.length > 256)
        ? wrong("that is too long a list")
        : go({ ...answers, noProxy }, "time");
    },
  },
  time: {
    step: "time",
    ask: (_, { now }) =>
      `This machine's clock says ${momentText(now)}. Enter if that is right, or the time in UTC as 2026-11-21 18:30: `,
    parse(text, answers, { isRegistered, least }) {
      const next = isRegistered ? "done" : "license";
      if (text === "") return go(answers, next);
      const time = momentOf(text);
      if (time === undefined) return wrong("write it as 2026-11-21 18:30, in UTC");
      if (time < least) return wrong(`it is ${momentText(least)} or later`);
      return go({ ...answers, time }, next);
    },
  },
  license: {
    step: "license",
    ask: () => "License: paste it as one line, or name its file (Enter for later): ",
    parse(text, answers, { now, least }) {
      if (text === "") return go(answers, "done");
      if (isPath(text)) return { is: "file", path: text };
      try {
        return go({ ...answers, license: judgeLicense(text, { now: Math.max(now, least) }).text }, "done");
      } catch (error) {
        return wrong(toError(error).message);
      }
    },
  },
};

/** Returns the first question. Pure. */
export function firstQuestion({ whyNoNetwork, nics }: Facts): QuestionId {
  return whyNoNetwork === undefined && nics.length > 0 ? "nic" : "proxy";
}

const ipOf = ({ ip = "", length = 24 }: Answers): string => `${ip}/${length}`;

/** Reports whether an answer is a path: unlike a license it has a slash, or is short and not base64url JSON. */
const isPath = (text: string): boolean => text.includes("/") || (text.length < 200 && !text.startsWith("ey"));

function momentOf(text: string): number | undefined {
  const found = /^(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2})(?::(\d{2}))?Z?$/.exec(text);
  if (found === null) return undefined;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = found
    .slice(1)
    .map((part) => Number(part ?? "0"));
  const at = Date.UTC(year, month - 1, day, hour, minute, second);
  // Rejects impossible days and hours, which Date would shift.
  const isSame =
    new Date(at).toISOString().slice(0, 16) === `${found.slice(1, 4).join("-")}T${found.slice(4, 6).join(":")}`;
  return isSame && second < 60 ? at : undefined;
}
