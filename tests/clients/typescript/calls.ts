// Ten calls through the TypeScript client that is generated beside this file.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

import { client } from './client/client.gen.js';
import {
  countPoi,
  getImport,
  getPoi,
  listBudgets,
  listDatasets,
  listJobs,
  listPoi,
  listPoiChanges,
  patchPoi,
  searchPoi,
  startPoiImport,
} from './client/index.js';
import type { ImportDetails, ListPoiData, PoiPatch } from './client/index.js';

const url = process.argv[2];
assert(url !== undefined);
client.setConfig({ baseUrl: url });

// records

const datasets = await listDatasets({ throwOnError: true });
const names: string[] = datasets.data.items.map((dataset) => dataset.name);
assert.deepEqual(names.sort(), ['import', 'poi', 'regions', 'rows', 'shops']);

const query: ListPoiData['query'] = {
  town: ['eq.Bonn'],
  points: ['gte.3', 'lt.11'],
  sort: '-points',
  fields: ['id', 'kind'],
  limit: 3,
};
const page = await listPoi({ query, throwOnError: true });
assert.deepEqual(page.data.items, [
  { id: 9, kind: 'fast' },
  { id: 7, kind: 'fast' },
  { id: 5, kind: 'fast' },
]);

const cursor: string | null = page.data.page.next;
assert(cursor !== null);
const rest = await listPoi({ query: { ...query, cursor }, throwOnError: true });
assert.deepEqual(rest.data.items, [{ id: 3, kind: 'fast' }]);
assert.equal(rest.data.page.next, null);

// a record

const got = await getPoi({ path: { id: 7 }, throwOnError: true });
const isOpen: boolean | null | undefined = got.data.is_open;
const kind: 'fast' | 'slow' | null | undefined = got.data.kind;
const phone: string | null | undefined = got.data.phone;
assert.deepEqual([isOpen, kind, phone], [true, 'fast', '+49 228 7']);
assert.equal(got.data.lat, 50.07);
assert.equal(got.data.day, '2026-01-07');
assert.equal(got.data.seen, '2026-01-07T12:00:00Z');
assert.deepEqual(got.data.extra, { tags: ['a', 7, null], deep: { is: true } });
const missing = await getPoi({ path: { id: 99 } });
assert.equal(missing.error?.status, 404);

const etag = got.response.headers.get('etag');
assert(etag !== null);
const body: PoiPatch = { note: 'Checked' };
const headers = { 'If-Match': etag };
const patched = await patchPoi({ path: { id: 7 }, body, headers, throwOnError: true });
assert.equal(patched.data.note, 'Checked');
assert.equal(patched.data.points, 7);
const again = await patchPoi({ path: { id: 7 }, body, headers });
assert.equal(again.error?.status, 412);

// search and changes

const found = await searchPoi({
  query: { q: 'harbour', near: '50.01,7.0', within: 3, limit: 2 },
  throwOnError: true,
});
assert.deepEqual(
  found.data.items.map((item) => item.record.id),
  [1, 2],
);
assert.equal(found.data.items[0]?.match.km, 0);

const counts = await countPoi({ query: { by: ['town', 'points'] }, throwOnError: true });
assert.equal(counts.data.rows, 12);
assert.deepEqual(
  counts.data.facets.map((facet) => facet.field),
  ['town', 'points'],
);

const changes = await listPoiChanges({ query: { after: 0 }, throwOnError: true });
const last = changes.data.items.at(-1);
assert.deepEqual([last?.kind, last?.key, last?.import_id], ['updated', [7], null]);

// an import

const started = await startPoiImport({
  body: { mode: 'full' },
  headers: { 'Idempotency-Key': 'generated' },
  throwOnError: true,
});
const path = { import: started.data.import_id };
const deadline = Date.now() + 120_000;
let details: ImportDetails;
do {
  await sleep(100);
  details = (await getImport({ path, throwOnError: true })).data;
} while (['planning', 'running'].includes(details.status) && Date.now() < deadline);
assert.equal(details.status, 'done');
assert(details.proven);
assert.equal(details.records.seen, 12);

const jobs = await listJobs({ query: path, throwOnError: true });
assert.notEqual(jobs.data.items.length, 0);
assert(jobs.data.items.every((job) => job.status === 'done'));

const budgets = await listBudgets({ throwOnError: true });
const practice = budgets.data.items.find((budget) => budget.name === 'practice');
assert.equal(practice?.state, 'open');
