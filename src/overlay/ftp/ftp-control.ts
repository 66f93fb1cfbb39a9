import { isIP } from "node:net";
import { Lines } from "./lines.ts";

/** What stands in a flow and may change what passes. */
export interface FlowFilter {
  /** From the client. */
  up(chunk: Buffer): Buffer;
  /** To the client. */
  down(chunk: Buffer): Buffer;
  close(): void;
}

export interface FtpControlOptions {
  /** Listens for the client's data connection and leads it to this port of the server; undefined when it cannot be had. */
  readonly openData: (serverPort: number) => { readonly ip: string; readonly port: number } | undefined;
  /** Answers the client in the server's place. */
  readonly say: (line: string) => void;
  readonly onClose: () => void;
}

/** What cannot pass: connections that the server makes, and a control channel that nobody else can read. */
const REFUSED: Readonly<Record<string, string>> = {
  PORT: "502 Only passive mode is possible here.\r\n",
  EPRT: "502 Only passive mode is possible here.\r\n",
  AUTH: "502 TLS is not possible here.\r\n",
};
const NO_DATA = "425 Can't open data connection.\r\n";

/** The control channel of FTP (RFC 959, RFC 2428) in passive mode: replies that name a port are made to name one here. */
export function ftpControl({ openData, say, onClose }: FtpControlOptions): FlowFilter {
  const commands = new Lines((line) => {
    const refusal = REFUSED[/^[A-Za-z]{3,4}/.exec(line)?.[0].toUpperCase() ?? ""];
    if (refusal === undefined) return line;
    say(refusal);
    return "";
  });
  const replies = new Lines((line) => {
    const announced = announcedPort(line);
    if (announced === undefined) return line;
    const place = openData(announced.port);
    if (place === undefined) return NO_DATA;
    if (announced.isExtended) return `229 Entering Extended Passive Mode (|||${place.port}|)\r\n`;
    // The older reply has no room for another kind of address.
    if (isIP(place.ip) !== 4) return NO_DATA;
    const numbers = [...place.ip.split("."), place.port >> 8, place.port & 0xff].join(",");
    return `227 Entering Passive Mode (${numbers}).\r\n`;
  });
  return { up: (chunk) => commands.pass(chunk), down: (chunk) => replies.pass(chunk), close: onClose };
}

/** The data port that a reply of the server names; the address that an older reply names with it is not believed. */
export function announcedPort(line: string): { readonly port: number; readonly isExtended: boolean } | undefined {
  const extended = /^229 .*\(([!-~])\1\1(\d{1,5})\1\)/.exec(line)?.[2];
  const [, high, low] = /^227 .*?\d{1,3},\d{1,3},\d{1,3},\d{1,3},(\d{1,3}),(\d{1,3})/.exec(line) ?? [];
  const port = extended === undefined ? Number(high) * 256 + Number(low) : Number(extended);
  return port >= 1 && port <= 65_535 ? { port, isExtended: extended !== undefined } : undefined;
}

/** Reads the control channel at the server's side and changes nothing; `onPort` is told of each port that the server names. */
export function ftpWatch(onPort: (port: number) => void): Pick<FlowFilter, "down"> {
  const replies = new Lines((line) => {
    const announced = announcedPort(line);
    if (announced !== undefined) onPort(announced.port);
    return line;
  });
  return { down: (chunk) => replies.pass(chunk) };
}
