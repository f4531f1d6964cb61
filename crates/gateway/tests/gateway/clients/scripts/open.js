// A browser without a window and without habits of its own.
const { chromium } = require('playwright-core');

const [executablePath, address, pictures] = process.argv.slice(2);
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--no-proxy-server'];

// Does the work on a page, and prints what it came to.
module.exports = async (work) => {
  const browser = await chromium.launch({ executablePath, args });
  try {
    const page = await browser.newPage({ viewport: { width: 1000, height: 900 } });
    const errors = [];
    page.on('pageerror', (error) => errors.push(String(error)));
    page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
    const seen = await work(page, address, pictures);
    console.log(JSON.stringify({ ...seen, errors }));
  } finally {
    await browser.close();
  }
};
