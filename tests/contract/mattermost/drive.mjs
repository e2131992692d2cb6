// The official JavaScript client, REST and WebSocket, against a server; what it saw goes to standard output as JSON.
//
//     node drive.mjs MODULES URL STORY
//
// MODULES is the directory that holds node_modules. The stories are the functions below; each talks to the server
// through the client alone, and through /_control where it needs something to go wrong. Nothing is judged here:
// test_js_client.py knows what has to come out.

import {createRequire} from 'node:module';

const [modules, url, story] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const {Client4, WebSocketClient} = require('@mattermost/client');
const WebSocketOfNode = require('ws');

// What the client expects of a browser and node 18 does not have.
globalThis.WebSocket ??= WebSocketOfNode;
globalThis.CloseEvent ??= class extends Event {
    constructor(type, init = {}) {
        super(type);
        Object.assign(this, init);
    }
};
console.log = () => {}; // the client tells its story there, and standard output is ours

async function control(name, args = [], named = {}) {
    const answer = await fetch(`${url}/_control/${name}`, {method: 'POST', body: JSON.stringify({args, ...named})});
    const said = await answer.json();
    if (!answer.ok) {
        throw new Error(`${name}: ${said.error}`);
    }
    return said.result;
}

function client(token) {
    const made = new Client4();
    made.setUrl(url);
    made.setToken(token);
    return made;
}

// The server's own name for a refusal, where it refuses.
async function refusal(call) {
    try {
        await call();
    } catch (error) {
        return {error: error.server_error_id, status: error.status_code};
    }
    return null;
}

// One event connection. `header`: log in with the header of the upgrade, as gatewayd does, and not with a challenge.
class Listener {
    constructor(token, {header}) {
        this.events = [];
        this.missed = 0;
        this.closed = 0;
        this.urls = [];
        this.waiting = [];
        this.socket = new WebSocketClient({
            minWebSocketRetryTime: 20,
            maxWebSocketRetryTime: 100,
            reconnectJitterRange: 1,
            newWebSocketFn: (address) => {
                this.urls.push(address);
                return new WebSocketOfNode(address, header ? {headers: {Authorization: `Bearer ${token}`}} : {});
            },
        });
        this.socket.addMessageListener((event) => {
            this.events.push(event);
            this.look();
        });
        this.socket.addMissedMessageListener(() => this.missed++);
        this.socket.addCloseListener(() => {
            this.closed++;
            this.look();
        });
        this.token = header ? undefined : token;
    }

    connect() {
        this.socket.initialize(`${url.replace('http', 'ws')}/api/v4/websocket`, this.token);
        return this.until(() => this.named('hello').length === 1);
    }

    named(name) {
        return this.events.filter((event) => event.event === name);
    }

    posted() {
        return this.named('posted').map((event) => JSON.parse(event.data.post).message);
    }

    look() {
        this.waiting = this.waiting.filter(({condition, done}) => !(condition() && (done(), true)));
    }

    // No deadline of ours: the test that started us has one.
    until(condition) {
        return condition() ? Promise.resolve() : new Promise((done) => this.waiting.push({condition, done}));
    }

    ask(send) {
        return new Promise((done) => send(done));
    }

    ping() {
        return this.ask((done) => this.socket.ping(done));
    }
}

// An empty server, set up through the client alone, as a real one would be.
async function people() {
    const admin = client('');
    const first = await admin.createUser({email: 'root@example.com', username: 'root', password: 'password-of-root'}, '', '');
    await admin.login('root', 'password-of-root');
    const second = await admin.createUser({email: 'ann@example.com', username: 'ann', password: 'password-of-ann'}, '', '');
    const bot = await admin.createBot({username: 'box', display_name: 'Box', description: 'a bot'});
    const token = await admin.createUserAccessToken(bot.user_id, 'for the tests');
    const team = await admin.createTeam({name: 'team', display_name: 'Team', type: 'O'});
    for (const user of [second.id, bot.user_id]) {
        await admin.addToTeam(team.id, user);
    }
    const ann = client('');
    await ann.login('ann@example.com', 'password-of-ann');
    const direct = await ann.createDirectChannel([second.id, bot.user_id]);
    return {admin, ann, box: client(token.token), token: token.token, first, second, bot, team, direct};
}

async function rest() {
    const {admin, ann, box, first, second, bot, team, direct} = await people();
    const seen = {first: first.roles, second: second.roles, direct: direct.type};
    const me = await box.getMe();
    seen.me = [me.username, me.is_bot, 'is_bot' in (await ann.getMe())];
    seen.greeting = (await admin.getPosts((await admin.createDirectChannel([first.id, bot.user_id])).id)).order.length;
    seen.names = (await box.getProfilesByUsernames(['ann', 'nobody'])).map((user) => user.username);
    const channel = await admin.createChannel({team_id: team.id, name: 'room', display_name: 'Room', type: 'P'});
    seen.outside = await refusal(() => box.createPost({channel_id: channel.id, message: 'knock'}));
    await admin.addToChannel(bot.user_id, channel.id);
    const group = await ann.createGroupChannel([first.id, second.id, bot.user_id]);
    seen.channels = (await box.getAllTeamsChannels()).map((each) => each.type).sort();
    seen.group = group.type;

    const root = await ann.createPost({channel_id: direct.id, message: 'hello', create_at: 5});
    seen.dated = root.create_at === 5;
    const reply = await box.createPost({
        channel_id: direct.id, root_id: root.id, message: 'hi', pending_post_id: 'p1', props: {unsafe_links: 'true', boxmaker: 'k'},
    });
    seen.reply = [reply.props, reply.pending_post_id];
    const again = await box.createPost({channel_id: direct.id, root_id: root.id, message: 'hi', pending_post_id: 'p1'});
    seen.again = again.id === reply.id;
    seen.toReply = await refusal(() => box.createPost({channel_id: direct.id, root_id: reply.id, message: 'no'}));
    seen.elsewhere = await refusal(() => box.createPost({channel_id: group.id, root_id: root.id, message: 'no'}));
    seen.fits = (await box.createPost({channel_id: direct.id, message: '\u{1F600}'.repeat(16383)})).message.length;
    seen.tooLong = await refusal(() => box.createPost({channel_id: direct.id, message: 'x'.repeat(16384)}));
    seen.tooLarge = await refusal(() => box.createPost({channel_id: direct.id, message: 'x', props: {a: 'x'.repeat(301_000)}}));

    const patched = await box.patchPost({id: reply.id, message: 'hi there', props: {unsafe_links: 'true'}});
    seen.patched = [patched.message, patched.props, patched.edit_at > 0];
    seen.ofAnother = await refusal(() => box.patchPost({id: root.id, message: 'mine'}));
    const thread = await box.getPaginatedPostThread(root.id, {direction: 'down', perPage: 1});
    seen.thread = [thread.order.length, thread.order[0] === root.id, thread.has_next];
    seen.perPage = await refusal(() => box.getPaginatedPostThread(root.id, {perPage: 201}));
    const since = await box.getPostsSince(direct.id, root.create_at - 1);
    seen.since = since.order.map((id) => since.posts[id]).filter((post) => post.original_id === reply.id && post.delete_at).length;
    await ann.addReaction(second.id, reply.id, 'eyes');
    seen.reactions = (await box.getReactionsForPost(reply.id)).map((reaction) => reaction.emoji_name);

    await ann.deletePost(root.id);
    seen.deleted = await refusal(() => box.getPost(root.id));
    seen.toDeleted = await refusal(() => box.createPost({channel_id: direct.id, root_id: root.id, message: 'late'}));
    seen.left = (await box.getPosts(direct.id, 0, 200)).order.length;
    const config = await box.getClientConfig();
    seen.config = [config.MaxPostSize, typeof config.EnableLinkPreviews];
    seen.public = 'MaxPostSize' in (await client('').getClientConfig());
    seen.stranger = await refusal(() => client('0123456789abcdefghijklmnop').getMe());
    return seen;
}

async function lonely() {
    await people();
    const admin = client('');
    await admin.login('root', 'password-of-root');
    const alone = await admin.createBot({username: 'alone', display_name: 'Alone', description: ''});
    const token = await admin.createUserAccessToken(alone.user_id, 'for the tests');
    await control('leave_all', [alone.user_id]);
    return {channels: await refusal(() => client(token.token).getAllTeamsChannels())};
}

async function events() {
    const {ann, box, token, second, bot, direct} = await people();
    const listener = new Listener(token, {header: true});
    await listener.connect();
    const {server_version: version, connection_id: id} = listener.named('hello')[0].data;
    const root = await ann.createPost({channel_id: direct.id, message: 'one'});
    await box.createPost({channel_id: direct.id, root_id: root.id, message: 'two'});
    await ann.patchPost({id: root.id, message: 'ONE'});
    const watcher = new Listener(ann.getToken(), {header: false});
    await watcher.connect();
    const typing = await listener.ask((done) => listener.socket.userTyping(direct.id, root.id, done));
    await watcher.until(() => watcher.named('typing').length === 1);
    await ann.deletePost(root.id);
    await listener.until(() => listener.named('post_deleted').length === 1);
    const pong = await listener.ping();
    const unknown = await listener.ask((done) => listener.socket.sendMessage('no_such_action', {}, done));
    const first = listener.named('posted')[0];
    const gone = JSON.parse(listener.named('post_deleted')[0].data.post);
    const typed = watcher.named('typing')[0];
    const seen = {
        version,
        id: id.length,
        posted: listener.posted(),
        type: first.data.channel_type,
        name: first.data.channel_name === [second.id, bot.user_id].sort().join('__'),
        sender: first.data.sender_name,
        edited: listener.named('post_edited').map((event) => JSON.parse(event.data.post).message),
        deleted: [gone.message, gone.delete_at],
        typing: [typing.status, typed.data.user_id === bot.user_id, typed.data.parent_id === root.id, typed.broadcast.channel_id === direct.id],
        own: listener.named('typing').length,
        pong: [pong.status, pong.data.text, pong.data.version],
        unknown: [unknown.status, unknown.error.id],
        sequence: listener.events.every((event, index) => event.seq === index),
        closed: listener.closed,
    };
    listener.socket.close();
    watcher.socket.close();
    return seen;
}

// A dropped connection with events in between: they come after it, in order, and nothing is said to be missed.
async function resume() {
    const {ann, token, direct} = await people();
    const listener = new Listener(token, {header: true});
    await listener.connect();
    const expected = [];
    for (let round = 0; round < 5; round++) {
        await control('drop_sockets');
        for (let number = 0; number < 3; number++) {
            expected.push(`${round}.${number}`);
            await ann.createPost({channel_id: direct.id, message: `${round}.${number}`});
        }
        await listener.until(() => listener.posted().length === expected.length || listener.missed > 0);
    }
    const seen = {
        complete: JSON.stringify(listener.posted()) === JSON.stringify(expected),
        resumed: listener.urls.slice(1).every((address) => /connection_id=\w{26}&sequence_number=[1-9]/.test(address)),
        attempts: listener.urls.length,
        hello: listener.named('hello').length,
        missed: listener.missed,
        sequence: listener.events.every((event, index) => event.seq === index),
    };
    listener.socket.close();
    return seen;
}

// More events than the server keeps, and a server that was started anew: the client is told to look for itself.
async function loss() {
    const {ann, token, direct} = await people();
    const listener = new Listener(token, {header: true});
    const seen = {missed: [], renewed: []};
    const broken = [
        async () => {
            await control('fail', ['GET', '/websocket'], {status: 503, times: 1000});
            await control('drop_sockets');
            for (let number = 0; number < 257; number++) {
                await ann.createPost({channel_id: direct.id, message: `${number}`});
            }
            await control('clear_faults');
        },
        () => control('restart'),
    ];
    await listener.connect();
    for (const [index, breakIt] of broken.entries()) {
        const before = listener.socket.connectionId;
        await breakIt();
        await listener.until(() => listener.named('hello').length === index + 2);
        seen.missed.push(listener.missed);
        seen.renewed.push(listener.socket.connectionId !== before);
    }
    seen.posted = listener.posted().length;
    await ann.createPost({channel_id: direct.id, message: 'afterwards'});
    await listener.until(() => listener.posted().includes('afterwards'));
    listener.socket.close();
    return seen;
}

// A token that was revoked: the connection stays open and is told nothing, and the ping says why.
async function revoked() {
    const {ann, token, direct} = await people();
    const listener = new Listener(token, {header: true});
    await listener.connect();
    await control('revoke', [token]);
    await ann.createPost({channel_id: direct.id, message: 'unheard'});
    const pong = await listener.ping();
    const seen = {posted: listener.posted(), pong: [pong.status, pong.error?.id, pong.error?.status_code], closed: listener.closed};
    listener.socket.close();
    return seen;
}

// Whoever logs in by a challenge cannot resume.
async function challenge() {
    const {ann, token, direct} = await people();
    const listener = new Listener(token, {header: false});
    await listener.connect();
    await control('drop_sockets');
    await ann.createPost({channel_id: direct.id, message: 'in between'});
    await listener.until(() => listener.named('hello').length === 2);
    await listener.ping();
    const seen = {missed: listener.missed, posted: listener.posted()};
    listener.socket.close();
    return seen;
}

const stories = {rest, lonely, events, resume, loss, revoked, challenge};
// The client cannot close a connection that it is just opening, and would be kept alive by it.
process.stdout.write(`${JSON.stringify(await stories[story]())}\n`, () => process.exit(0));
