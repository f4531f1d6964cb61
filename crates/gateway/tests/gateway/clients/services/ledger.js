// A service on Node's own server. For every POST it writes a line into its ledger, and then answers with 32 bytes that it
// never gives twice and the body that it got. Ends with its standard input.
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');

const ledger = process.argv[2];

// A form as people write it: one key for each time that the page is opened.
const FORM = `<!doctype html><meta charset="utf-8"><title>Order</title>
<form id="order" method="post" action="/orders">
  <label>What <input name="what" value="umbrella"></label>
  <button>Order</button>
</form>
<script>
  const key = crypto.randomUUID();
  const form = document.getElementById('order');
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const answer = await fetch(form.action, {
      method: 'POST',
      headers: { 'Idempotency-Key': key },
      body: new URLSearchParams(new FormData(form)),
    });
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const line = document.createElement('p');
    line.textContent = answer.status + ' ' + Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
    document.body.append(line);
  });
</script>`;

const server = http.createServer((request, response) => {
  if (request.method === 'GET') {
    response.setHeader('Content-Type', 'text/html');
    response.end(FORM);
    return;
  }
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const body = Buffer.concat(parts);
    fs.appendFileSync(ledger, `${request.headers['operation-id'] ?? 'none'} ${request.url} ${body.length}\n`);
    response.writeHead(201, { 'Content-Type': 'application/octet-stream', Location: '/charges/7' });
    response.end(Buffer.concat([crypto.randomBytes(32), body]));
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
