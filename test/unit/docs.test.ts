import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";
import { AgentFile } from "../../src/agent/settings.ts";
import { verbs } from "../../src/cli/verbs.ts";
import { optionNames } from "../../src/controller/options.ts";
import { triggerEvents } from "../../src/protocol/values/trigger-events.ts";
import { ApiBench } from "../support/control-plane/api-bench.ts";

const { routes } = await ApiBench.create();
const optionsOf = new Map(
  await Promise.all(
    Object.entries(verbs).map(async ([name, load]) => [name, new Set(Object.keys((await load()).options))] as const),
  ),
);
const GUIDE = "docs/guide";
const pages = ["README.md", "CONTRIBUTING.md", ...globSync("docs/**/*.md")]
  .toSorted()
  .map((path) => ({ path, text: readFileSync(path, "utf8") }));
const guide = pages.filter(({ path }) => path.startsWith(`${GUIDE}/`));
const written = pages.filter(({ path }) => !path.startsWith("docs/protocol/") && !path.startsWith("docs/decisions/"));
const pageOf = (name: string): string => guide.find(({ path }) => path === `${GUIDE}/${name}`)?.text ?? "";

const withoutCode = (text: string): string =>
  text.replaceAll(/^ *```[\s\S]*?^ *```/gm, "").replaceAll(/`[^`\n]*`/g, "");

/** Returns the anchors of a page's headings in GitHub's form. */
const anchorsOf = (text: string): ReadonlySet<string> =>
  new Set(
    [...text.replaceAll(/^```[\s\S]*?^```/gm, "").matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) =>
      heading
        .toLowerCase()
        .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );

test("every link leads to a file and a heading that exist", () => {
  const dangling = pages.flatMap(({ path, text }) =>
    [...withoutCode(text).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)]
      .filter(([, to = "", anchor]) => {
        const target = to === "" ? path : normalize(join(dirname(path), to));
        if (!existsSync(target)) return true;
        return anchor !== undefined && !anchorsOf(readFileSync(target, "utf8")).has(anchor);
      })
      .map(([link]) => `${path}: ${link}`),
  );
  expect(dangling).toEqual([]);
});

test("the guide links only to its own pages, since a package carries nothing else, and lists them all", () => {
  const outside = guide.flatMap(({ path, text }) =>
    [...withoutCode(text).matchAll(/\]\((\.\.[^)]*)\)/g)].map(([, to]) => `${path}: ${to}`),
  );
  expect(outside).toEqual([]);
  const listed = new Set(
    [...pageOf("README.md").matchAll(/\]\(([a-z-]+\.md)\)/g)].map(([, name]) => `${GUIDE}/${name}`),
  );
  expect(guide.map(({ path }) => path).filter((path) => path !== `${GUIDE}/README.md` && !listed.has(path))).toEqual(
    [],
  );
});

test("mentioned verbs and options exist", () => {
  const wrong = written.flatMap(({ path, text }) =>
    // A command line ends with a quote, a comment or a pipe.
    [...text.matchAll(/(?:^|[\s`/])holdfast ([a-z][a-z-]*)([^`\n#|&;]*)/gm)]
      .filter(
        ([whole]) =>
          /`holdfast|^\s*(?:sudo |setsid |ssh node )?(?:scripts\/)?\/?holdfast/.test(whole) ||
          whole.includes("/holdfast"),
      )
      .flatMap(([, name = "", rest = ""]) => {
        const options = optionsOf.get(name);
        if (options === undefined) return HIDDEN.has(name) ? [] : [`${path}: holdfast ${name}`];
        return [...(rest.split(" -- ")[0]?.matchAll(/(?<=\s)--([a-z][a-z0-9-]*)/g) ?? [])]
          .filter(([, option = ""]) => !options.has(option))
          .map(([option]) => `${path}: holdfast ${name} ${option}`);
      }),
  );
  expect(wrong).toEqual([]);
});

/** Programs for other programs, which help does not list. */
const HIDDEN = new Set(["self-test", "transfer", "upgrade-fetch"]);

test("mentioned API calls are served", () => {
  const shape = (path: string): string => path.replaceAll(/\{[^}]*\}|\$[A-Z]+/g, "{}").replace(/\/$/, "");
  const served = routes.map(({ method, path }) => ({
    method,
    pattern: new RegExp(
      `^${shape(path)
        .replaceAll(/[.*+?^$()|[\]\\]/g, "\\$&")
        .replaceAll("{}", "[^/]+")}$`,
    ),
  }));
  const wrong = guide
    .filter(({ path }) => !path.endsWith("limits.md"))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/\b(GET|POST|PUT|DELETE)\s+['"]?(\/[^\s`'"?,;)]+)/g)]
        .filter(([, , to = ""]) => !UNROUTED.test(to))
        .filter(
          ([, method, to = ""]) => !served.some((route) => route.method === method && route.pattern.test(shape(to))),
        )
        .map(([, method, to]) => `${path}: ${method} ${to}`),
    );
  expect(wrong).toEqual([]);
});

/**
 * Paths served beside the routes: the release files, the token of the registry, a terminal's WebSocket, the description, the metrics of a
 * node.
 */
const UNROUTED = /^\/(?:releases\/|registry\/token|openapi\.json|metrics|node\/[^/]+\/trigger\/container-exec)/;

test("mentioned files and rooms exist", () => {
  const wrong = pages
    .filter(({ path }) => !path.startsWith("docs/protocol/") && !path.endsWith("benchmarks.md"))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/(?<![\w/.-])((?:src|test|scripts|systemd)\/[\w./-]*[\w/])/g)]
        .map(([, to = ""]) => to)
        .filter((to) => !existsSync(to))
        .map((to) => `${path}: ${to}`),
    );
  expect(wrong).toEqual([]);
});

test("the architecture's rooms are the folders", () => {
  const { text = "" } = pages.find(({ path }) => path === "docs/architecture.md") ?? {};
  const sections = [...text.matchAll(/^### (src\/[^\n]*)\n([\s\S]*?)(?=^##)/gm)];
  const named = sections.flatMap(([, heading = "", body = ""]) =>
    [...body.matchAll(/^\| (.*?) \|/gm)]
      .flatMap(([, cell = ""]) => [...cell.matchAll(/`([^`]+)\/`/g)].map(([, room = ""]) => room))
      .map((room) => (heading.includes(",") ? `src/${room}` : join(heading.trim(), room))),
  );
  expect(named.filter((room) => !existsSync(room))).toEqual([]);
  // Every folder below a program that has a table is in it, by itself or by its parent.
  const folders = new Set(
    globSync("src/{agent,overlay,host,controller,protocol,cli}/*/*.ts").map((path) => dirname(path)),
  );
  const missing = [...folders].filter(
    (folder) => !named.some((room) => room === folder || room.startsWith(`${folder}/`)),
  );
  expect(missing.filter((folder) => !UNLISTED.has(folder))).toEqual([]);
});

/** Rooms that are not in the picture. */
const UNLISTED = new Set(["src/protocol/values", "src/cli/completion"]);

test("the references are complete", () => {
  const missing = (page: string, names: readonly string[]): readonly string[] =>
    names.filter((name) => !pageOf(page).includes(`\`${name}\``)).map((name) => `${page}: ${name}`);
  expect([
    ...missing("cli.md", Object.keys(verbs)),
    ...missing("triggers.md", triggerEvents),
    ...missing("settings.md", Object.keys(AgentFile.shape)),
    ...optionNames
      .filter((name) => name !== "state" && !new RegExp(`--${name}\\b`).test(pageOf("controller.md")))
      .map((name) => `controller.md: --${name}`),
  ]).toEqual([]);
});

test("lines wrap at 120 outside code and tables", () => {
  const long = written
    .filter(({ path }) => !path.endsWith("benchmarks.md"))
    .flatMap(({ path, text }) => {
      let isCode = false;
      return text.split("\n").flatMap((line, index) => {
        if (/^\s*```/.test(line)) isCode = !isCode;
        return isCode || line.startsWith("|") || line.length <= 120 ? [] : [`${path}:${index + 1}`];
      });
    });
  expect(long).toEqual([]);
});
