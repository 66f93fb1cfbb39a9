import { isDue, TESTS_ALL } from "../sample.ts";

const AREA = "test/unit/controller";

/** Tests of what the controller stores. The rest, which only needs some store, runs there if all tests are requested. */
const STORED = [
  "stores",
  "controller",
  "access/{routes,store}",
  "channel/{registration,sessions,telemetry-intake}",
  "channel/documents/{documents,neighbours}",
  "clusters/*",
  "containers/output-store",
  "events/routes",
  "images/store",
  "nodes/routes",
  "stats/{flow-store,gateway-details-store,telemetry}",
];
/** Tests whose statements the ones above make too; each runs there on every third day. */
const STORED_ALIKE = [
  "channel/{awaiting,first-license}",
  "channel/ip-lock",
  "channel/triggers",
  "channel/documents/domain",
  "config/item-routes",
  "stats/flow-routes",
  "stats/plugin-log-routes",
];

/** Files of unit tests that run a second time with the store on PostgreSQL. */
export const ON_POSTGRES: readonly string[] = TESTS_ALL
  ? [`${AREA}/**/*.test.ts`]
  : [...STORED, ...STORED_ALIKE.filter((name) => isDue(`${name} on PostgreSQL`))].map(
      (name) => `${AREA}/${name}.test.ts`,
    );

/** Tests in them, by parts of their names, that run there on every third day. */
const ALIKE = [
  // Requests that are refused, most of them before any statement.
  " refuses ",
  // Decisions in memory about many connections of a node.
  "flap",
  "ten reconnects",
];

/** Tests in them that do not run there. */
export const NOT_ON_POSTGRES: readonly string[] = [
  ...ALIKE.filter((name) => !isDue(`${name} on PostgreSQL`)),
  // Of the file of SQLite.
  "the first start makes secrets that only their owner can read",
  "a damaged database is named and left as it is",
  "the token is nowhere in the database",
  "a node that cannot be stored hears that it is not to blame",
  "failures of the store are logged once a minute",
  "a document is followed once it can be stored",
  "who does not come back after a crash or a restart is missed",
  "a right to one node, and the right to see or manage nodes, activates none",
  // Expect an order of calls that begin at the same time, which connections do not keep.
  "batches of useless records are charged by their records",
  "no more than 64 triggers wait for one node",
  "a trigger that waits for a node is not sent again to where it is held",
  "a change raises the version and is announced once",
  // Fill a share with many thousand rows, one statement each.
  "refuses a range that holds too much",
  "what nodes send pushes out nothing that the control plane wrote",
  "is a share per node, of which the oldest go",
  "one node holds a share and no more, and takes nothing from another",
  "a node that has had its share loses its oldest, and no other does",
  "the health check answers while one node floods",
];
